"""What shards say, put together: counts add up, bounds of priorities and times do not."""

from typing import Any

from shmreplay.clients.shards.shard_infos import joined


def test_what_counts_adds_up_and_the_rest_goes_by_its_meaning() -> None:
    of_shards: dict[str, list[Any]] = {
        "name": ["t~0", "t~1", "t~2"],
        "size": [3, 0, 4],
        "blocked_inserts_s": [0.5, 0.0, 0.25],
        "max_times_sampled": [2, 2, 2],
        "samples_per_insert": [8.0, 8.0, 8.0],
        "max_priority": [1.0, 0.0, 7.0],
        "min_priority": [0.5, 0.0, 0.25],
        "last_insert_s_ago": [3.0, None, 1.5],
        "paused_inserts": [True, False, True],
        "paused_samples": [True, True, True],
    }
    assert joined("t", of_shards) == {
        "name": "t",
        "size": 7,
        "blocked_inserts_s": 0.75,
        "max_times_sampled": 2,
        "samples_per_insert": 8.0,
        "max_priority": 7.0,
        "min_priority": 0.25,  # a shard without items has none
        "last_insert_s_ago": 1.5,
        "paused_inserts": False,  # only if all are
        "paused_samples": True,
    }


def test_of_empty_shards_there_is_no_time_and_no_priority() -> None:
    found = joined("t", {"min_priority": [0.0, 0.0], "last_sample_s_ago": [None, None]})
    assert found == {"min_priority": 0.0, "last_sample_s_ago": None}
