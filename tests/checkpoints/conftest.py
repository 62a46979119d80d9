"""Fixtures for tests of checkpoints: daemons with a directory for them, and an embedded server."""

from tests.system.conftest import daemon, make_daemon, run_script

__all__ = ["daemon", "make_daemon", "run_script"]
