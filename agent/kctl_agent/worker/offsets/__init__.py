"""Where reading begins and how far it has come: what brokers, storage and group know, weighed against each other."""

from __future__ import annotations
