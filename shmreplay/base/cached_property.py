"""cached_property: a property that is computed once for each object, without a lock that a fork could copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # named as functools names its own
    """As `functools.cached_property`, which before Python 3.12 has one lock for all objects.

    A child that is forked while another thread has that lock would wait for it for ever. Here two threads may both
    compute the value of an object, but all threads get the same one: that of the first to be done.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """Computes the value, and keeps it where Python finds it first from then on."""
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
