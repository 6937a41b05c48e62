"""Connects to the fleet's other hosts by the settings of `[hosts]`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kctl import __version__
from kctl.config.sections import Config
from kctl.errors import ConfigError
from kctl.hosts.hosts import Hosts
from kctl.hosts.membership import HostsMember
from kctl.hosts.roster import Host
from kctl.http.access import read_tokens
from kctl.kafka.client.access import of_fleet

if TYPE_CHECKING:
    from kctl.hosts.peers import PeersAccess

T = TypeVar("T")
_PORT = re.compile(r":\d+\Z")


def hosts_of(config: Config, port: int) -> Hosts | None:
    """Starts nothing; None if the fleet runs on one host. `port` is the HTTP port. Raises ConfigError."""
    settings = config.hosts
    if not settings.url:
        return None
    from kctl.hosts.peers import Peers  # with httpcore, which a fleet on one host does without

    url = settings.url if _PORT.search(settings.url) else f"{settings.url}:{port}"
    me = Host(settings.own_name, url, time.time_ns(), __version__)
    group = settings.group or f"{config.kafka.group}.kctl-masters"
    member = HostsMember(of_fleet(config), group, config.kafka.topics[0], me, settings.forget_seconds)
    return Hosts(member, with_access(Peers, config), me, (config.kafka.cluster, config.kafka.group))


def with_access(use: Callable[[PeersAccess], T], config: Config) -> T:
    """Calls `use` with the current tokens and certificates. Raises ConfigError."""
    try:
        return use(_peers_access(config))
    except OSError as error:  # ssl.SSLError is one
        file = config.hosts.ca_file
        raise ConfigError(f"hosts.ca_file {file} cannot be used: {error.strerror or error}") from None


def _peers_access(config: Config) -> PeersAccess:
    from kctl.hosts.peers import PeersAccess  # see above

    settings, folder = config.hosts, config.path.parent

    def tokens(setting: str, name: str) -> tuple[str, ...]:
        return tuple(each.secret for each in read_tokens(folder / name, setting, may_act=False)) if name else ()

    return PeersAccess(
        tokens("hosts.token_file", settings.token_file),
        tokens("hosts.operations_token_file", settings.operations_token_file),
        str(folder / settings.ca_file) if settings.ca_file else None,
        settings.allow_plain,
    )
