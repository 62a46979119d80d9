"""What these tests have: a driver without a GPU."""

from tests.support.fake_cuda import cuda, device

__all__ = ["cuda", "device"]
