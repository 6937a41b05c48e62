"""Judges the status of partitions and groups by rules, without clock or I/O (docs/status.md)."""

from kctl.status.assessor import Assessor
from kctl.status.owners import Owner
from kctl.status.rules import StatusRules, allowed_lag
from kctl.status.words import UNKNOWN, Assessment, Status

__all__ = ["UNKNOWN", "Assessment", "Assessor", "Owner", "Status", "StatusRules", "allowed_lag"]
