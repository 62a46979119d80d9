"""What client.stats() would return, made up: for tests of what is shown of it."""

from typing import Any

NO_BOUND = 1.7976931348623157e308


def info(name: str, **changes: Any) -> dict[str, Any]:
    """A table of 1,000 items at most, half full, with a ratio of 4 from 10 items on."""
    found: dict[str, Any] = {
        "name": name, "size": 500, "max_size": 1000, "inserts": 700, "samples": 2800, "deletes": 200, "num_episodes": 5,
        "num_deleted_episodes": 2, "num_unique_samples": 400, "evicted": 200, "evicted_for_room": 0,
        "max_times_sampled": 0, "sampler": 2, "remover": 0, "sampler_exponent": 0.0, "remover_exponent": 0.0,
        "capacity_steps": 1000, "samples_per_insert": 4.0, "min_size_to_sample": 10, "min_diff": -160.0,
        "max_diff": 240.0, "difference": 40.0, "uncounted": 0, "count_deletes": False, "paused_inserts": False,
        "paused_samples": False, "is_stopping": False, "is_dropped": False, "last_insert_s_ago": 0.5,
        "last_sample_s_ago": None, "views": 0, "contiguous_views": 0, "bytes": 4096, "writers": 1, "learners": 1,
        "writers_gone": False, "learners_gone": False,
    }  # fmt: skip
    for side in ("inserts", "samples"):
        found |= {f"blocked_{side}": 0, f"blocked_{side}_total": 0, f"blocked_{side}_s": 0.0}
    return {**found, **changes}


def session(pid: int, **changes: Any) -> dict[str, Any]:
    """An attached process."""
    found: dict[str, Any] = {
        "session": pid % 100, "generation": 1, "pid": pid, "start_time": pid * 10, "name": f"actor-{pid}", "inserts": 0,
        "samples": 0, "updates": 0, "writes": [], "reads": [], "open_streams": 0, "pinned_chunks": 0, "role": "idle",
    }  # fmt: skip
    return {**found, **changes}


def wait(table: str, side: str, pid: int, since_s: float) -> dict[str, Any]:
    """A call that sleeps since the moment 10^12 - `since_s`, for the rate limiter."""
    return {
        "table": table, "side": side, "pid": pid, "session": pid % 100, "since_s": since_s,
        "began_ns": 10**12 - int(since_s * 1e9), "wants_room": False,
    }  # fmt: skip


def arena(*infos: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An arena of these tables, which two processes are attached to."""
    found: dict[str, Any] = {
        "index_bytes": 1 << 20, "data_bytes": 3 << 20, "huge_bytes": 0, "failure": None, "is_unlinked": False,
        "tables": {each["name"]: each for each in infos}, "sessions": [], "waits": [], "lock_holder": None,
        "stats": {
            "num_chunks": 100, "free_chunks": 60, "used_chunks": 40, "retired_chunks": 0, "chunk_steps": 10,
            "num_blocks": 0, "free_blocks": 0, "block_bytes": 0, "failed": False, "num_sessions": 2,
            "lock_waits": 3, "lock_wait_s": 0.25,
            "rebuilds": 0, "pinned_chunks": 0, "oldest_lease_s": None, "holds": 1000, "recoveries": 0,
            "chunk_bytes": 13_000, "index_bytes": 1 << 20, "data_bytes": 3 << 20, "max_streams": 64,
        },
    }  # fmt: skip
    return {**found, **changes}


def stats(arenas: dict[str, dict[str, Any]], **daemon: Any) -> dict[str, Any]:
    """A daemon with these arenas."""
    found: dict[str, Any] = {
        "pid": 1234, "version": "0.1.0", "instance": "default", "uptime_s": 7200.0, "clients": 3, "processes": 2,
        "deaths": 0, "checkpoint": None,
    }  # fmt: skip
    return {"daemon": {**found, **daemon}, "arenas": arenas}
