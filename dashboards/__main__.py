"""`python -m dashboards`: writes every dashboard as JSON into this folder."""

from pathlib import Path

from dashboards.build import DASHBOARDS, to_json

for name, build in DASHBOARDS.items():
    (Path(__file__).parent / f"{name}.json").write_text(to_json(build()), encoding="utf-8")
