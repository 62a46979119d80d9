"""What these tests have: tables on one embedded server a module."""

from tests.tables import make_table, server

__all__ = ["make_table", "server"]
