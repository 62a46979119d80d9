"""A short storm; `python -m tests.soak --minutes 60` is a long one."""

import os
import pathlib

import pytest

from tests.soak.storm import Storm, daemon_for

SECONDS = float(os.environ.get("SHMREPLAY_SOAK_SECONDS", "12"))


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.timeout(SECONDS + 600)
def test_a_storm_of_deaths_loses_nothing_tears_nothing_and_leaves_nothing(
    tmp_path: pathlib.Path, seed: int, nothing_left_by_this_test: None
) -> None:
    with daemon_for(tmp_path) as daemon:
        tally = Storm(daemon, tmp_path, seed, count=15).blow(SECONDS)
    print(tally)
    assert tally.musters >= 1
    assert tally.consumed > 0
    assert tally.kept_checked > 0
    assert tally.checkpoints > 0
    assert tally.restored > 0
