"""A table in plain Python: what the real one must do, said as simply as it can be."""

from collections.abc import Sequence
from dataclasses import dataclass

from shmreplay import rate_limiters, selectors


@dataclass(frozen=True)
class Row:
    """A step: its number, and the columns that it has."""

    n: int
    has: frozenset[str]


@dataclass
class Item:
    """A live item."""

    key: int
    rows: tuple[Row, ...]
    priority: float
    episode: object  # equal for items of one episode
    step: int  # index of the first row in its episode
    insert_no: int
    touched: int  # when it was inserted or updated last
    times_sampled: int = 0


@dataclass
class Counters:
    """What `info()` must say."""

    inserts: int = 0
    samples: int = 0
    deletes: int = 0
    evicted: int = 0
    evicted_for_room: int = 0
    num_unique_samples: int = 0
    num_deleted_episodes: int = 0


class PlainTable:
    """Items oldest first; `add`, `sampled`, `update`, `delete`, `reset` change it as one operation each."""

    def __init__(
        self,
        max_size: int,
        sampler: selectors.Selector,
        remover: selectors.Selector,
        max_times_sampled: int,
        limiter: rate_limiters.RateLimiter,
    ) -> None:
        self.max_size = max_size
        self.sampler = sampler
        self.remover = remover
        self.max_times_sampled = max_times_sampled
        self.limiter = limiter
        self.offset = 0.0
        self.items: list[Item] = []
        self.counters = Counters()
        self.paused_inserts = self.paused_samples = False
        self._insert_no = 0
        self._touches = 0

    # --- the rate limiter ----------------------------------------------------------------------------------------

    @property
    def difference(self) -> float:
        return self.counters.inserts * self.limiter.samples_per_insert - self.counters.samples + self.offset

    def can_insert(self, n: int = 1) -> bool:
        if self.paused_inserts:
            return False
        if len(self.items) + n <= self.limiter.min_size_to_sample:
            return True
        return self.difference + n * self.limiter.samples_per_insert <= self.limiter.max_diff

    def can_sample(self, n: int = 1) -> bool:
        """By the limiter, as the next n draws meet it if they delete nothing."""
        is_there = 0 < len(self.items) >= self.limiter.min_size_to_sample
        return not self.paused_samples and is_there and self.difference - n >= self.limiter.min_diff

    def set_limiter(self, limiter: rate_limiters.RateLimiter, rebase: bool) -> None:
        self.limiter = limiter
        self.offset = 0.0
        if not rebase:
            return
        low, high = limiter.min_diff > -1e300, limiter.max_diff < 1e300
        start = self.difference
        if low and high:
            start = (limiter.min_diff + limiter.max_diff) / 2
        elif low:
            start = max(start, limiter.min_diff + 1)
        elif high:
            start = min(start, limiter.max_diff - limiter.samples_per_insert)
        self.offset = start - self.difference

    # --- selectors -----------------------------------------------------------------------------------------------

    def pick(self, selector: selectors.Selector, taken: Sequence[Item] = ()) -> Item | None:
        """The item that a selector must pick of those that are not taken; None where chance decides."""
        items = self.left(taken)
        if isinstance(selector, selectors.Fifo):
            return items[0]
        if isinstance(selector, selectors.Lifo):
            return items[-1]
        if isinstance(selector, selectors.MinHeap):
            return min(items, key=lambda item: (item.priority, item.touched))
        if isinstance(selector, selectors.MaxHeap):
            return min(items, key=lambda item: (-item.priority, item.touched))
        return items[0] if len(items) == 1 else None

    def left(self, taken: Sequence[Item]) -> list[Item]:
        """Items that are not taken."""
        return [item for item in self.items if all(item is not other for other in taken)]

    def drawable(self, taken: Sequence[Item] = ()) -> list[Item]:
        """Items that the sampler may draw next without replacement."""
        if isinstance(self.sampler, selectors.Prioritized) and any(item.priority > 0 for item in self.items):
            return [item for item in self.left(taken) if item.priority > 0]
        return self.left(taken)

    def weight(self, item: Item) -> float:
        exponent = self.sampler.exponent
        return item.priority**exponent if item.priority > 0 else 0.0

    def probability(self, item: Item) -> float:
        """With which the sampler draws an item now."""
        if not isinstance(self.sampler, (selectors.Uniform, selectors.Prioritized)):
            return 1.0
        total = sum(self.weight(other) for other in self.items)
        if isinstance(self.sampler, selectors.Uniform) or total == 0:
            return 1.0 / len(self.items)
        return self.weight(item) / total

    def default_priority(self) -> float:
        largest = max((item.priority for item in self.items), default=0.0)
        return largest if isinstance(self.sampler, selectors.Prioritized) and largest > 0 else 1.0

    # --- operations ----------------------------------------------------------------------------------------------

    def find(self, key: int) -> Item | None:
        return next((item for item in self.items if item.key == key), None)

    def append(self, key: int, rows: tuple[Row, ...], priority: float | None, episode: object, step: int) -> None:
        """Takes an item in; the table may then have one too many, which `evict` mends."""
        value = self.default_priority() if priority is None else priority
        self.items.append(Item(key, rows, value, episode, step, self._insert_no, self._next_touch()))
        self._insert_no += 1
        self.counters.inserts += 1

    def evict(self, item: Item, *, for_room: bool = False) -> None:
        self._remove(item)
        self.counters.evicted += 1
        self.counters.evicted_for_room += for_room

    def sampled(self, item: Item) -> None:
        item.times_sampled += 1
        self.counters.samples += 1
        self.counters.num_unique_samples += item.times_sampled == 1
        if item.times_sampled == self.max_times_sampled:
            self._remove(item)

    def update(self, key: int, priority: float) -> int:
        if (item := self.find(key)) is None:
            return 0
        item.priority, item.touched = priority, self._next_touch()
        return 1

    def delete(self, key: int) -> int:
        if (item := self.find(key)) is None:
            return 0
        self._remove(item)
        return 1

    def reset(self) -> None:
        self.items = []
        self.counters = Counters()
        self.offset = 0.0

    def age(self, item: Item) -> int:
        return self._insert_no - 1 - item.insert_no

    @property
    def num_episodes(self) -> int:
        return len({item.episode for item in self.items})

    def _remove(self, item: Item) -> None:
        self.items.remove(item)
        self.counters.deletes += 1
        self.counters.num_deleted_episodes += all(other.episode != item.episode for other in self.items)
        if item.times_sampled == 0 and self.limiter.count_deletes:
            self.counters.samples += 1

    def _next_touch(self) -> int:
        self._touches += 1
        return self._touches
