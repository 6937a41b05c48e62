"""The command line: `entry` has the tree of commands and runs one, `command` declares one."""


def main() -> int:
    """The entry point `kctl`: runs this process's command line and returns the exit code, or exits."""
    try:
        from kctl.cli.entry import run_process  # inside, so that Ctrl-C during the imports is silent too

        return run_process()
    except KeyboardInterrupt:
        return 130
