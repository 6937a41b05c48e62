"""`kctl kafka wire`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.cli.kafka.cluster import connected
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.protocol.wire import Frame
from kctl.cli.kafka.frames import show_frames
from kctl.cli.kafka.requests import READ_ONLY, request_of

__all__ = ["run"]


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if options.decode is not None:
        return _decode(options)
    if options.request is None:
        raise UsageError(f"give a request: {', '.join(READ_ONLY)}; or --decode FILE")
    if options.request not in READ_ONLY:
        raise UsageError(f"`{options.request}` is not one of {', '.join(READ_ONLY)}: only these are sent")
    with connected(options, env) as connection:
        from kctl.kafka.client.exchange import exchange
        from kctl.kafka.protocol.wire import request_frame, response_frame

        connection.open(options.topic or [])
        request, node = request_of(connection, options)
        highest = type(request).max_version
        if options.version is not None:
            if options.version > highest:
                raise UsageError(f"this client knows {options.request} up to version {highest}, not {options.version}")
            request.API_VERSION = options.version
        sent, received, problem = exchange(connection, request, node)
    shown = [request_frame(sent)]
    if received:
        shown.append(response_frame(received, options.request, shown[0].version))
    show_frames(options, shown)
    if problem is not None:
        raise problem
    return 0


def _decode(options: argparse.Namespace) -> int:
    from kctl.kafka.protocol.wire import bytes_of_text, frames, requests

    if options.response is not None and options.response not in requests():
        raise UsageError(f"there is no request `{options.response}`; there are {', '.join(requests())}")
    try:
        text = sys.stdin.read() if options.decode == "-" else Path(options.decode).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.decode} cannot be read as text: {error}") from None
    found: list[Frame] = []
    problem: UsageError | None = None
    try:
        found.extend(frames(bytes_of_text(text), options.response, options.version))  # those before a bad one stay
    except UsageError as error:
        problem = error
    show_frames(options, found)
    if problem is not None:
        raise problem
    return 0
