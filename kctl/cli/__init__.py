"""The command line."""


def main() -> int:
    """The entry point `kctl`."""
    try:
        from kctl.cli.entry import run_process  # inside, so that Ctrl-C during the imports is silent too

        return run_process()
    except KeyboardInterrupt:
        return 130
