"""A fleet whose masters run on several hosts: who is there, and what the others answer."""

from __future__ import annotations
