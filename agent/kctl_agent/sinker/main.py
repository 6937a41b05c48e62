"""The process of a sinker, `python -m kctl_agent.sinker`. If the master ends, the sinker stores the results of claims
that it has begun to handle, releases its other claims, and exits."""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from kctl_agent.process.bootstrap import EX_CONFIG, BootstrapError, begin, left, log_trace
from kctl_agent.process.outages import Stopped, until_it_works
from kctl_agent.process.stop import StopRequest, watch_parent
from kctl_agent.replies.questions import asked_of
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, PauseScopes, operation_commands
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.sinker.handler import Handler, decode_messages, load
from kctl_agent.sinker.in_flight import Part
from kctl_agent.sinker.sinker import Sinker, SinkerSettings, parse
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.sinker.watchdog import Watchdog
from kctl_agent.storage.base import Storage, StorageMisconfigured
from kctl_agent.storage.kinds import open_storage

log = logging.getLogger("kctl_agent.sinker")


def main() -> int:
    return begin("sinker", parse, _commands, _serve)


def _commands(inbox: Inbox) -> dict[str, AgentCommand]:
    return {name: COMMANDS[name] for name in asked_of("sinker")} | operation_commands(inbox, PauseScopes)


def _serve(settings: SinkerSettings, server: AgentServer, inbox: Inbox) -> int:
    storage = open_storage(settings.storage)
    stats, stop = SinkerProcessStats(settings.name, server, storage, inbox), StopRequest()
    watch_parent(stop.ask)
    code, why = 0, ""
    stats.start()
    try:
        until_it_works(storage.prepare, stats, stop)
        decode_messages(settings.formats)
        handler = load(settings.handler, settings.handler_timeout_seconds, settings.import_dir)
        stats.handler = handler.name
        _run(settings, storage, handler, stats, stop, inbox)
    except Stopped:
        pass
    except (BootstrapError, StorageMisconfigured) as error:
        code, why = EX_CONFIG, f"cannot start: {error}"
        log_trace(error)
    except Exception as error:  # the process boundary
        code, why = 1, f"failed: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        log_trace(error)
    if why:
        stats.ended(why)
    stats.close()
    storage.close()
    return left(log, code, why)


def _run(
    settings: SinkerSettings,
    storage: Storage,
    handler: Handler,
    stats: SinkerProcessStats,
    stop: StopRequest,
    inbox: Inbox,
) -> None:
    def timed_out(call: Sequence[Part]) -> None:
        why = ""
        try:
            why = sinker.settle_in_flight(call)
            stats.ended(why)
            stats.close()
        finally:
            log.error("%s", why or "a call of the handler did not return")
            with suppress(OSError):  # a full disk
                sys.stdout.flush()
            os._exit(1)

    limits = settings.lease_seconds, settings.handler_timeout_seconds
    guard = Watchdog(storage, *limits, lambda claimed: sinker.report_lost(claimed), timed_out)
    sinker = Sinker(settings, storage, handler, stats, stop, guard, inbox)
    handler.open()
    guard.start()
    try:
        sinker.run()
    finally:
        guard.close()
        handler.close()
