"""A fleet whose masters run on several hosts."""

from __future__ import annotations
