"""What a worker does next. Pure: no clock, no Spark, no broker, no storage."""

from __future__ import annotations
