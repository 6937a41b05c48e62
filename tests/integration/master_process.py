"""A master with stand-in workers, and the command line, as processes of their own (tests/preloaded.py)."""

import faulthandler
import os
import sys
from pathlib import Path

from kctl import cli, logs
from kctl.config.load import load
from kctl.start.master import run

WORKER = Path(__file__).with_name("stand_in_worker.py")


def run_master() -> int:
    config = load(Path(sys.argv[1]), os.environ)
    logs.configure("INFO")
    faulthandler.enable()
    return run(config, config.path, worker_command=[sys.executable, str(WORKER)])


def run_command() -> int:
    return cli.main()


if __name__ == "__main__":
    sys.exit(run_master())
