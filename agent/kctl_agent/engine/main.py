"""An engine's process: `python -m kctl_agent.engine` (see `process.bootstrap`). The agent's socket is up before Java
starts; workers ask there for a gateway."""

from __future__ import annotations

import logging
import os
import threading

from kctl_agent.engine.engine import Engine, OpenGateway
from kctl_agent.engine.settings import EngineSettings, parse
from kctl_agent.engine.stats import EngineProcessStats
from kctl_agent.process import parent_watch
from kctl_agent.process.bootstrap import begin, log_trace
from kctl_agent.process.tracebacks import first_line
from kctl_agent.replies.questions import asked_of
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, ping_of
from kctl_agent.rpc.commands.log_level import LOG_LEVEL
from kctl_agent.rpc.commands.operations import accepting, outcome_command
from kctl_agent.rpc.commands.stack_dump import STACK_DUMP
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.spark.scratch import sweep
from kctl_agent.spark.session import why_lost

log = logging.getLogger("kctl_agent.engine")

_END_SECONDS = 30.0


def main() -> int:
    return begin("engine", parse, _commands, _serve)


def _commands(inbox: Inbox) -> dict[str, AgentCommand]:
    own = (accepting(inbox, OpenGateway), outcome_command(inbox), LOG_LEVEL, STACK_DUMP, ping_of(inbox))
    return {name: COMMANDS[name] for name in asked_of("engine")} | {command.name: command for command in own}


def _serve(settings: EngineSettings, server: AgentServer, inbox: Inbox) -> int:
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the trace of each lost connection
    sweep(settings.scratch_dir)
    stats = EngineProcessStats(settings.name, server, inbox)
    stats.start()
    engine = Engine(settings, stats, inbox)

    def on_orphaned() -> None:
        engine.stop()
        # A hung JVM blocks the main thread; it exits when its stdin, which comes from this process, is closed.
        last_resort = threading.Timer(settings.orphan_seconds + _END_SECONDS, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()

    parent_watch.start(on_orphaned)
    why = ""
    try:
        engine.run()
    except Exception as error:  # the process boundary
        lost = why_lost(error, settings.spark, "engine.heap")
        why = f"failed: {lost or f'{type(error).__name__}: {first_line(error)}'}"
        stats.ended(why)
        log_trace(error)
    finally:
        _close(engine)
        stats.close()
    if why:
        log.error("%s", why)
        return 1
    log.info("left")
    return 0


def _close(engine: Engine) -> None:
    try:
        engine.close()
    except Exception as error:  # a JVM that is gone
        log.debug("while stopping: %s: %s", type(error).__name__, first_line(error))
