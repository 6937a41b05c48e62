"""A client for the groups API of a `kctl exporter`, or of a master with `exporter.all_groups`."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from kctl.cli.command import Option
from kctl.errors import ClusterMissing, GroupMissing, IncompleteAnswer, KctlError, NoMaster, UsageError
from kctl.secrets import secret_of
from kctl_agent.errors import NotReady

URL = "http://127.0.0.1:9751"
_ERRORS: Mapping[str, type[KctlError]] = {
    ClusterMissing.code: ClusterMissing,
    GroupMissing.code: GroupMissing,
    UsageError.code: UsageError,
    NotReady.code: IncompleteAnswer,
}

URL_OPTION = Option(("--url",), "a `kctl exporter`, or a master with exporter.all_groups", default=URL)
CLUSTER = Option(("--cluster",), "only this cluster")
TOKEN_FILE = Option(("--token-file",), "a file with the bearer token", "path")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    # A redirect could send the token to another server.
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class GroupsApi:
    url: str
    token_file: Path | None = None

    def groups(self, cluster: str | None, patterns: Sequence[str], sort: str, limit: int) -> dict[str, Any]:
        """Returns groups that match `patterns` (globs). Raises UsageError, ClusterMissing, ConfigError, NoMaster."""
        return self._get("/api/v1/groups", {"cluster": cluster, "group": list(patterns), "sort": sort, "limit": limit})

    def group(self, cluster: str | None, name: str) -> dict[str, Any]:
        """Returns a group with partitions and members. Raises GroupMissing, IncompleteAnswer (the server does not
        know the group yet), and the errors of `groups`."""
        return self._get(f"/api/v1/groups/{urllib.parse.quote(name, safe='')}", {"cluster": cluster})

    def advice(self, cluster: str | None, name: str) -> dict[str, Any]:
        """Returns advice on a group. Raises the errors of `group`, and IncompleteAnswer until there is advice."""
        return self._get("/api/v1/group-advice", {"cluster": cluster, "group": name})

    def _get(self, path: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"--url takes http://HOST:PORT or https://HOST:PORT, not `{self.url}`")
        given = {name: value for name, value in params.items() if value is not None}
        query = f"?{urllib.parse.urlencode(given, doseq=True)}" if given else ""
        where = f"{self.url.rstrip('/')}{path}{query}"
        # A proxy could read the token of an unencrypted request.
        proxies = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirects)
        try:
            request = urllib.request.Request(where, headers=self._headers())  # noqa: S310 - checked above
            with opener.open(request, timeout=20.0) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(where, error) from None
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", error)
            raise NoMaster(f"nothing answers at {where}: {why}; start `kctl exporter`, or name it with --url") from None

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json"}
        token = secret_of(self.token_file, f"--token-file {self.token_file}")
        if token is not None:
            headers["authorization"] = f"Bearer {token.strip()}"
            url = urllib.parse.urlsplit(self.url)
            if url.scheme == "http" and url.hostname not in ("127.0.0.1", "::1", "localhost"):
                raise UsageError(f"{self.url} has no TLS, so others could read the token: nothing was sent")
        return headers


def unanswered(answer: dict[str, Any]) -> str | None:
    """Describes what an answer lacks: clusters that are not ready, and data missing from ready clusters."""
    missing = []
    for cluster in answer["clusters"]:
        if cluster["not_ready"] is not None:
            missing.append(cluster["not_ready"])
        else:
            missing += [f"cluster {cluster['cluster']}: {part}: {why}" for part, why in cluster["errors"].items()]
    return "; ".join(dict.fromkeys(missing)) or None


def _refused(where: str, error: urllib.error.HTTPError) -> KctlError:
    try:
        reason = json.load(error)["error"]
        code, message = str(reason["code"]), str(reason["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "", error.reason
    if code in _ERRORS:
        return _ERRORS[code](message)
    if error.code == 404:
        message = "it does not collect all groups: set exporter.all_groups, or ask a `kctl exporter`"
    return NoMaster(f"{where} answered {error.code}: {message}")
