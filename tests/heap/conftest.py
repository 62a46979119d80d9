"""What these tests have: tables on one embedded server a module, and forked processes."""

from tests.children import fork
from tests.tables import make_table, server

__all__ = ["fork", "make_table", "server"]
