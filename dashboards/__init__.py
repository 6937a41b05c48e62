"""Grafana dashboards of fleets, built in Python: `python -m dashboards` writes the JSON files beside this one."""
