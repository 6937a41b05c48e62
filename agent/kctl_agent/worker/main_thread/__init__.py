"""The turns of the main thread, and what it does in them."""

from __future__ import annotations
