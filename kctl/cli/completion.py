"""Shell completion: suggestions for the word being typed, and the shell script that asks kctl for them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kctl.cli.command import Command, CommandGroup, Option
from kctl.cli.help import HELP
from kctl.errors import UsageError

_SCRIPTS = {
    "bash": """\
_kctl() {
    local IFS=$'\\n'
    COMPREPLY=($(_KCTL_COMPLETE=bash kctl "${COMP_WORDS[@]:1:COMP_CWORD}"))
}
complete -o default -F _kctl kctl
""",
    "zsh": """\
#compdef kctl
_kctl() {
    local -a offered
    offered=("${(@f)$(_KCTL_COMPLETE=zsh kctl "${(@)words[2,CURRENT]}")}")
    [[ -n $offered ]] && _describe kctl offered || _files
}
compdef _kctl kctl
""",
    "fish": """\
function __kctl
    set -l begun (commandline -ct)
    set -l offered (_KCTL_COMPLETE=fish kctl (commandline -opc)[2..-1] "$begun")
    test -n "$offered"; and printf '%s\\n' $offered; or __fish_complete_path "$begun"
end
complete --command kctl --no-files --arguments '(__kctl)'
""",
}


def complete(node: Command | CommandGroup, words: Sequence[str], shell: str) -> list[str]:
    """Suggests completions for the last word, as lines for `shell`."""
    *before, begun = words or [""]
    chosen: Option | None = None
    for word in before:
        if chosen is None and isinstance(node, CommandGroup):
            node = next((each for each in node.commands if each.name == word), node)
        named = next((each for each in node.options if word in each.names), None)
        chosen = named if named is not None and named.kind != "flag" else None
    offered = [each for each in _offered(node, chosen, begun) if each[0].startswith(begun)]
    separator = {"zsh": ":", "fish": "\t"}.get(shell)
    return [f"{word}{separator}{meaning}" if separator and meaning else word for word, meaning in offered]


def script(env: Mapping[str, str]) -> str:
    """Returns the script for the shell in SHELL. Raises UsageError if kctl does not support the shell."""
    shell = Path(env.get("SHELL", "")).name
    if shell not in _SCRIPTS:
        raise UsageError(f"SHELL is `{shell}`: there is completion for {', '.join(_SCRIPTS)}")
    return _SCRIPTS[shell]


def _offered(node: Command | CommandGroup, chosen: Option | None, begun: str) -> Iterable[tuple[str, str]]:
    if chosen is not None:
        return [(each, "") for each in chosen.choices]
    if begun.startswith("-"):
        return [(max(each.names, key=len), each.help) for each in (*node.options, HELP) if not each.is_argument]
    if isinstance(node, CommandGroup):
        return [(each.name, each.summary) for each in node.commands]
    return [pair for each in node.options if each.is_argument for pair in each.completed]
