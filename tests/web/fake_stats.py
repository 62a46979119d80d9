"""What a daemon of any size says, without one: figures as `stats` has them, which move with every look."""

import math
from typing import Any

NO_BOUND = 1.7976931348623157e308
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
        daemon = {
            "pid": 4000, "version": "0.1.0", "instance": "default", "uptime_s": float(self.seconds),
            "clients": self._num_clients, "processes": self._num_clients, "deaths": 3, "checkpoint": self._saved,
        }  # fmt: skip
        return {"daemon": daemon, "arenas": arenas}

    def _arena(self, number: int, name: str, items: bool) -> dict[str, Any]:
        info = self._table(number, name)
        if items:
            info |= _of_items(number, info["size"])
        sessions = self._sessions(number, name)
        waits = [
            {"table": name, "side": side, "pid": session["pid"], "session": session["session"], "since_s": since_s}
            for side, since_s in (("insert", 0.4), ("sample", 31.0 + number))
            for session in sessions[: 3 * info[f"blocked_{side}s"]]
            if info[f"blocked_{side}s"]
        ]
        stats = {
            "num_chunks": 4096, "chunk_steps": 32, "chunk_bytes": 13_000, "free_chunks": 1024, "used_chunks": 3000,
            "retired_chunks": 72, "num_blocks": 0, "free_blocks": 0, "block_bytes": 0, "index_bytes": 2**24,
            "data_bytes": 2**26, "recoveries": 0, "holds": 10**6, "num_sessions": len(sessions), "failed": False,
            "lock_waits": 12, "lock_wait_s": 0.01, "rebuilds": 0, "pinned_chunks": 8, "oldest_lease_s": 0.2,
            "max_streams": 1024,
        }  # fmt: skip
        return {
            "index_bytes": 2**24, "data_bytes": 2**26, "huge_bytes": 0, "failure": None, "is_unlinked": False,
            "tables": {name: info}, "stats": stats, "sessions": sessions, "waits": waits, "lock_holder": None,
        }  # fmt: skip

    def _table(self, number: int, name: str) -> dict[str, Any]:
        wave = 1 + 0.5 * math.sin(self.seconds / 7 + number)
        inserts = int(self.seconds * 900 + 3000 * wave)
        samples = int(inserts * (7.6 + 0.4 * wave))
        waits, gone, paused = number % 10 == 3, number % 10 == 5, number % 10 == 7
        bound = NO_BOUND if number % 4 == 0 else 2000.0
        return {
            "name": name, "size": min(inserts, 100_000), "max_size": 100_000 * (1 + number % 3), "inserts": inserts,
            "samples": samples, "deletes": max(0, inserts - 100_000), "num_episodes": inserts // 200,
            "num_deleted_episodes": 0, "num_unique_samples": min(inserts, 90_000), "evicted": 0,
            "evicted_for_room": 0, "max_times_sampled": 0, "sampler": 2, "remover": 0, "sampler_exponent": 0.6,
            "remover_exponent": 0.0, "capacity_steps": 131_072, "samples_per_insert": 8.0 if bound < 1e300 else 1.0,
            "min_size_to_sample": 1000, "min_diff": -bound, "max_diff": bound, "difference": inserts * 8.0 - samples,
            "uncounted": 0, "count_deletes": False, "paused_inserts": paused, "paused_samples": False,
            "is_stopping": False, "is_dropped": False, "blocked_inserts": number % 10 == 1,
            "blocked_samples": int(waits),
            "blocked_inserts_total": 5, "blocked_samples_total": 9, "blocked_inserts_s": self.seconds * 0.1 * wave,
            "blocked_samples_s": self.seconds * 0.9 if waits else self.seconds * 0.05, "last_insert_s_ago": 0.01,
            "last_sample_s_ago": 0.02, "views": 0, "contiguous_views": 0, "bytes": 2**25,
            "writers": 0 if gone else ACTORS_PER_TABLE, "learners": LEARNERS_PER_TABLE, "writers_gone": gone,
            "learners_gone": False,
        }  # fmt: skip

    def _sessions(self, number: int, name: str) -> list[dict[str, Any]]:
        own = range(number, self._num_clients, self._num_tables)
        return [self._session(place, 10_000 + client, name) for place, client in enumerate(own)]

    def _session(self, place: int, pid: int, name: str) -> dict[str, Any]:
        is_learner = place < LEARNERS_PER_TABLE
        is_idle = place % 10 == 9
        rate = 0 if is_idle else self.seconds * (50 + pid % 13)
        return {
            "session": place, "generation": 1, "pid": pid, "start_time": 5,
            "name": "learner" if is_learner else self._actor,
            "inserts": 0 if is_learner else rate, "samples": rate * 64 if is_learner else 0,
            "updates": rate * 64 if is_learner else 0, "writes": [] if is_learner or is_idle else [name],
            "reads": [name] if is_learner else [], "open_streams": 0 if is_learner else 1,
            "pinned_chunks": 4 if is_learner else 0,
            "role": "learner" if is_learner else "idle" if is_idle else "writer",
        }  # fmt: skip


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
