"""The bucket of a table: where it is and with which keys, as delta-rs, obstore and Spark's S3A are configured."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kctl_agent.secrecy import read_private
from kctl_agent.storage.base import StorageMisconfigured

_PRINTABLE = re.compile(r"[!-~]+")
_ENDPOINT = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?(/[!-~]*)?")
_PROFILE = "default"
_REGION = "us-east-1"
"""What servers other than AWS mostly call theirs."""
_TIMEOUT_SECONDS = 30
_CONNECT_SECONDS = 5
RETRY_SECONDS = 20
"""After so long a request that fails is given up; what it was for is tried again by the caller."""


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """Never shown."""

    id: str = field(repr=False)
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: Path) -> StoreKeys:
        """From a file as `~/.aws/credentials` is. Raises StorageMisconfigured."""
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_private(path))
            found = parser[_PROFILE]
            keys = cls(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise StorageMisconfigured(f"{path} (storage.credentials_file) cannot be read: {why}") from None
        except (KeyError, configparser.Error):  # whose text quotes the file
            raise StorageMisconfigured(
                f"{path} (storage.credentials_file) is no file of credentials: it wants `[{_PROFILE}]` and lines "
                "`aws_access_key_id = …`, `aws_secret_access_key = …`"
            ) from None
        if not all(map(_PRINTABLE.fullmatch, (keys.id, keys.secret, keys.session_token or "-"))):
            raise StorageMisconfigured(  # obstore and delta-rs end in a panic by them
                f"{path} (storage.credentials_file) has an empty key, or one of several lines or of characters other "
                "than printable ASCII"
            )
        return keys


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Without `keys` each client finds its own, as AWS' own do. `endpoint` is a server's other than AWS."""

    bucket: str
    endpoint: str | None
    region: str
    keys: StoreKeys | None = None

    @classmethod
    def of(cls, storage: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> ObjectStore:
        """The one that the `[storage]` settings, and for what they leave open AWS' own variables, name."""
        endpoint = storage["endpoint"] or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
        region = storage["region"] or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or _REGION
        _check(endpoint, region)
        file = storage["credentials_file"]
        return cls(urlsplit(storage["uri"]).netloc, endpoint, region, StoreKeys.read(Path(file)) if file else None)

    def options(self) -> dict[str, str]:
        """Of delta-rs, and the `config` of obstore."""
        options = {
            "aws_region": self.region,
            "aws_endpoint": self.endpoint,
            # A server has buckets as folders, AWS as names of hosts.
            "aws_virtual_hosted_style_request": "false" if self.endpoint else "true",
            "aws_conditional_put": "etag",
        }
        if self.keys is not None:
            options |= {"aws_access_key_id": self.keys.id, "aws_secret_access_key": self.keys.secret}
            options["aws_session_token"] = self.keys.session_token
        return {name: value for name, value in options.items() if value is not None}

    def client_options(self) -> dict[str, str]:
        """Of the same, how their connections are."""
        options = {"timeout": f"{_TIMEOUT_SECONDS}s", "connect_timeout": f"{_CONNECT_SECONDS}s"}
        return options | {"allow_http": "true"} if self._is_plain else options

    def spark_properties(self) -> dict[str, str]:
        """Of S3A, for this bucket alone."""
        properties = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": "true" if self.endpoint else None,
            "connection.ssl.enabled": "false" if self._is_plain else None,
        }
        if self.keys is not None:
            kind = "Simple" if self.keys.session_token is None else "Temporary"
            properties |= {"access.key": self.keys.id, "secret.key": self.keys.secret}
            properties["session.token"] = self.keys.session_token
            properties["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
        prefix = f"spark.hadoop.fs.s3a.bucket.{self.bucket}"
        return {f"{prefix}.{name}": value for name, value in properties.items() if value is not None}

    @property
    def _is_plain(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


def _check(endpoint: str | None, region: str) -> None:
    """Refuse what obstore and delta-rs would end in a panic by. Raises StorageMisconfigured."""
    found = _ENDPOINT.fullmatch(endpoint or "http://none")
    if found is None or int(found["port"] or 0) > 65535:
        shown = "" if "@" in str(endpoint) else f" {endpoint}"
        raise StorageMisconfigured(
            f"the endpoint{shown} (storage.endpoint, or AWS_ENDPOINT_URL) is no URL as `https://host` or "
            "`http://host:port`"
        )
    if not _PRINTABLE.fullmatch(region):
        raise StorageMisconfigured(f"the region {region!r} (storage.region, or AWS_REGION) is none, as `us-east-1` is")
