"""The bucket of a table and its credentials, as settings for delta-rs, obstore and Spark's S3A."""

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
RETRY_SECONDS = 20
"""A failing request is given up after this time; the caller retries the whole operation."""


@dataclass(frozen=True, slots=True)
class StoreKeys:
    id: str = field(repr=False)
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: Path) -> StoreKeys:
        """Reads a file like `~/.aws/credentials`. Raises StorageMisconfigured."""
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_private(path))
            found = parser[_PROFILE]
            keys = cls(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise StorageMisconfigured(f"{path} (storage.credentials_file) cannot be read: {why}") from None
        except (KeyError, configparser.Error):  # its text quotes the file
            raise StorageMisconfigured(
                f"{path} (storage.credentials_file) is not a credentials file: it needs `[{_PROFILE}]` and the lines "
                "`aws_access_key_id = …` and `aws_secret_access_key = …`"
            ) from None
        if not all(map(_PRINTABLE.fullmatch, (keys.id, keys.secret, keys.session_token or "-"))):
            raise StorageMisconfigured(  # they make obstore and delta-rs panic
                f"{path} (storage.credentials_file) has an empty key, or a key that is not one line of printable ASCII"
            )
        return keys


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A bucket at AWS, or at the URL `endpoint`. Without `keys`, delta-rs, obstore and Spark look for credentials."""

    bucket: str
    endpoint: str | None
    region: str
    keys: StoreKeys | None = None

    @classmethod
    def of(cls, storage: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> ObjectStore:
        """Reads `[storage]`, then AWS' environment variables for missing values. Raises StorageMisconfigured."""
        endpoint = storage["endpoint"] or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
        region = storage["region"] or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        _check(endpoint, region)
        file = storage["credentials_file"]
        return cls(urlsplit(storage["uri"]).netloc, endpoint, region, StoreKeys.read(Path(file)) if file else None)

    def options(self) -> dict[str, str]:
        options = {
            "aws_region": self.region,
            "aws_endpoint": self.endpoint,
            # Other servers address a bucket by path, AWS by host name.
            "aws_virtual_hosted_style_request": "false" if self.endpoint else "true",
            "aws_conditional_put": "etag",
        }
        if self.keys is not None:
            options |= {"aws_access_key_id": self.keys.id, "aws_secret_access_key": self.keys.secret}
            options["aws_session_token"] = self.keys.session_token
        return {name: value for name, value in options.items() if value is not None}

    def client_options(self) -> dict[str, str]:
        options = {"timeout": "30s", "connect_timeout": "5s"}
        return options | {"allow_http": "true"} if self._is_plain else options

    def spark_properties(self) -> dict[str, str]:
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
    # Other values make obstore and delta-rs panic.
    found = _ENDPOINT.fullmatch(endpoint or "http://none")
    if found is None or int(found["port"] or 0) > 65535:
        shown = "" if "@" in str(endpoint) else f" {endpoint}"
        raise StorageMisconfigured(
            f"the endpoint{shown} (storage.endpoint, or AWS_ENDPOINT_URL) is not a URL such as `https://host` or "
            "`http://host:port`"
        )
    if not _PRINTABLE.fullmatch(region):
        raise StorageMisconfigured(
            f"{region!r} (storage.region, or AWS_REGION) is not the name of a region, such as `us-east-1`"
        )
