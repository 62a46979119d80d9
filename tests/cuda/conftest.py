"""What these tests have: a driver without a GPU, forked children, and tables on one embedded server a module."""

from tests.children import fork
from tests.cuda.fake_cuda import cuda, device
from tests.tables import make_table, server

__all__ = ["cuda", "device", "fork", "make_table", "server"]
