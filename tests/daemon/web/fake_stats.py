"""What a daemon of any size says, without one: figures as `stats` has them, which move with every look."""

import math
from typing import Any

from tests.support import fake_stats as fake

ACTORS_PER_TABLE = 18
LEARNERS_PER_TABLE = 2

DAMAGED = {
    "index_bytes": 2**24,
    "data_bytes": 2**26,
    "huge_bytes": 0,
    "failure": "its index is damaged",
    "is_unlinked": True,
    "tables": {"damaged": {}},
}


class FakeStats:
    """Tables with actors and learners; each look is one second later.

    Of every ten tables one has learners that wait, one lost its writers, and one is paused.
    """

    def __init__(
        self,
        num_tables: int,
        num_clients: int,
        saved: dict[str, Any] | None = None,
        actor: str = "actor",
        is_damaged: bool = False,
    ) -> None:
        self.seconds = 100
        self._num_tables = num_tables
        self._num_clients = num_clients
        self._saved = saved
        self._actor = actor  # what each of them is called
        self._is_damaged = is_damaged  # whether there is one more table, of whose arena nothing can be said

    async def read(self, items: bool = False) -> dict[str, Any]:
        """As `Commands.stats`."""
        self.seconds += 1
        names = [f"table_{number:02d}" for number in range(self._num_tables)]
        arenas = {name: self._arena(i, name, items) for i, name in enumerate(names)}
        if self._is_damaged:
            arenas["damaged"] = DAMAGED
        count = self._num_clients
        return fake.stats(
            arenas, uptime_s=float(self.seconds), clients=count, processes=count, deaths=3, checkpoint=self._saved
        )

    def _arena(self, number: int, name: str, items: bool) -> dict[str, Any]:
        info = self._table(number, name)
        if items:
            info |= _of_items(number, info["size"])
        sessions = self._sessions(number, name)
        waits = [
            fake.wait(name, side, session["pid"], since_s)
            for side, since_s in (("insert", 0.4), ("sample", 31.0 + number))
            for session in sessions[: 3 * info[f"blocked_{side}s"]]
        ]
        return fake.arena(info, sessions=sessions, waits=waits)

    def _table(self, number: int, name: str) -> dict[str, Any]:
        wave = 1 + 0.5 * math.sin(self.seconds / 7 + number)
        inserts = int(self.seconds * 900 + 3000 * wave)
        samples = int(inserts * (7.6 + 0.4 * wave))
        waits, gone = number % 10 == 3, number % 10 == 5
        bound = fake.NO_BOUND if number % 4 == 0 else 2000.0
        return fake.info(
            name,
            size=min(inserts, 100_000),
            max_size=100_000 * (1 + number % 3),
            inserts=inserts,
            samples=samples,
            deletes=max(0, inserts - 100_000),
            samples_per_insert=8.0 if bound < 1e300 else 1.0,
            min_size_to_sample=1000,
            min_diff=-bound,
            max_diff=bound,
            difference=inserts * 8.0 - samples,
            paused_inserts=number % 10 == 7,
            blocked_inserts=int(number % 10 == 1),
            blocked_samples=int(waits),
            blocked_inserts_total=5,
            blocked_samples_total=9,
            blocked_inserts_s=self.seconds * 0.1 * wave,
            blocked_samples_s=self.seconds * (0.9 if waits else 0.05),
            last_insert_s_ago=0.01,
            last_sample_s_ago=0.02,
            writers=0 if gone else ACTORS_PER_TABLE,
            learners=LEARNERS_PER_TABLE,
            writers_gone=gone,
        )

    def _sessions(self, number: int, name: str) -> list[dict[str, Any]]:
        own = range(number, self._num_clients, self._num_tables)
        return [self._session(place, 10_000 + client, name) for place, client in enumerate(own)]

    def _session(self, place: int, pid: int, name: str) -> dict[str, Any]:
        is_idle = place % 10 == 9
        rate = 0 if is_idle else self.seconds * (50 + pid % 13)
        if place < LEARNERS_PER_TABLE:
            done = {"samples": rate * 64, "updates": rate * 64, "reads": [name], "pinned_chunks": 4, "role": "learner"}
            return fake.session(pid, name="learner", **done)
        if is_idle:
            return fake.session(pid, name=self._actor, open_streams=1)
        return fake.session(pid, name=self._actor, inserts=rate, writes=[name], open_streams=1, role="writer")


def _of_items(number: int, size: int) -> dict[str, Any]:
    """What looking at items adds."""

    def spread(edges: list[float], centre: float) -> dict[str, Any]:
        weights = [math.exp(-((place - centre) ** 2) / 8) for place in range(len(edges) + 1)]
        counts = [int(size * weight / sum(weights)) for weight in weights]
        return {"edges": edges, "counts": counts, "sum": float(size), "of": min(size, 65_536)}

    return {
        "min_priority": 0.01, "max_priority": 4.2, "sum_priority": 1.1 * size,
        "ages": spread([float(10**power * step) for power in range(6) for step in (1, 2, 5)], 12 + number % 4),
        "times_sampled": spread([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 4),
        "priorities": spread([0.001 * 2**power for power in range(14)], 8 + number % 3),
    }  # fmt: skip
