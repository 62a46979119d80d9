"""cached_property: computed once for each object, the same for all threads, without a lock."""

import threading
from dataclasses import dataclass

from shmreplay.base.cached_property import cached_property
from tests.support.waiting import WAIT_S


@dataclass(frozen=True)
class Square:
    side: int

    @cached_property
    def area(self) -> list[int]:
        """The area."""
        return [self.side**2]


def test_a_value_is_computed_once_for_each_object() -> None:
    square = Square(3)
    assert square.area == [9]
    assert square.area is square.area
    assert Square(4).area == [16]
    assert Square.area.__doc__ == "The area."


def test_threads_compute_side_by_side_and_get_the_same_value() -> None:
    """No thread waits for another one: with a lock, the second would not come to its computation."""
    both = threading.Barrier(2)

    class Slow:
        @cached_property
        def value(self) -> object:
            both.wait(WAIT_S)
            return object()

    slow, found = Slow(), list[object]()
    threads = [threading.Thread(target=lambda: found.append(slow.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(found) == 2
    assert found[0] is found[1]
