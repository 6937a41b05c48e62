"""The one router of the API: FastAPI matches each included router by itself, which a small answer would notice."""

from __future__ import annotations

from fastapi import APIRouter

__all__ = ["router"]

router = APIRouter(prefix="/api/v1")
