"""Prints lines, files, words, lengths of functions, duplicate names and import circles: `make house`."""

import ast
import subprocess
from collections import Counter
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("kctl", "kctl_agent")
GENERATED = ("command-line.md", "configuration.md", "errors.md", "metrics.md", "problems.md", "proof.md", "rpc.md")


def main() -> None:
    product, tests = tracked("agent", "kctl"), tracked("tests")
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in product}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = sorted(name for name, count in classes.items() if count > 1)
    found = circles()
    pages = [ROOT / "README.md", *(path for path in tracked("docs", suffix=".md") if path.name not in GENERATED)]
    rows = {
        "lines of agent/ and kctl/": sum(map(lines, product)),
        "files": len(product),
        "lines of a file, median and most": f"{median(map(lines, product)):g} {max(map(lines, product))}",
        "lines of a function, median": f"{median((node.end_lineno or 0) - node.lineno + 1 for node in functions):g}",
        "lines of tests/": sum(map(lines, tests)),
        "words of README.md and docs/": sum(map(words, pages)),
        "words of generated pages": sum(words(ROOT / "docs" / name) for name in GENERATED),
        "words of benchmarks/README.md": words(ROOT / "benchmarks/README.md"),
        "public classes that exist twice": f"{len(twice)}: {', '.join(twice)}",
        "circles of modules": f"{len(found)}" + "".join(f"\n  {' <-> '.join(each)}" for each in found),
    }
    for name, value in rows.items():
        print(f"{name:<34} {value}")


def tracked(*folders: str, suffix: str = ".py") -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if name.endswith(suffix)]


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def words(page: Path) -> int:
    return sum(any(map(str.isalnum, each)) for each in page.read_text(encoding="utf-8").split())


def circles() -> list[list[str]]:
    """Modules that import each other, directly or not. Imports inside functions and for types count."""
    graph = grimp.build_graph(*PACKAGES)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found = {tuple(sorted({module} | {each for each in above[module] if module in above[each]})) for module in above}
    return [list(each) for each in sorted(found) if len(each) > 1]


if __name__ == "__main__":
    main()
