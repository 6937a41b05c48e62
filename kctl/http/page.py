"""A page with everything in it: no file beside it, and a policy that lets run what is in it and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from fastapi.responses import HTMLResponse

__all__ = ["Page"]


@dataclass(frozen=True, slots=True)
class Page:
    html: str
    policy: str

    @classmethod
    def of(cls, html: str) -> Page:
        """Its own scripts and styles are allowed by their hashes."""
        scripts, styles = (
            " ".join(f"'sha256-{_sha256(text)}'" for text in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL))
            for tag in ("script", "style")
        )
        none = "'none'"
        policy = (
            f"default-src 'none'; script-src {scripts or none}; style-src {styles or none}; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return cls(html, policy)

    @classmethod
    def load(cls, name: str) -> Page:
        """The file of that name beside this module."""
        return cls.of(resources.files("kctl.http").joinpath(name).read_text(encoding="utf-8"))

    def response(self) -> HTMLResponse:
        return HTMLResponse(self.html, headers={"content-security-policy": self.policy, "cache-control": "no-cache"})


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
