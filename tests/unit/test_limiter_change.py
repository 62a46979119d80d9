"""A rate limiter with another ratio."""

import math
import re

import pytest

from shmreplay.clients.cli.limiter_change import changed_limiter
from tests import fake_stats as fake


def test_bounds_stay_as_far_from_the_start_as_they_were() -> None:
    # 10 items at a ratio of 4 start at 40, with bounds 200 away
    found = changed_limiter(fake.info("t"), 8.0)
    assert (found.samples_per_insert, found.min_size_to_sample) == (8.0, 10)
    assert (found.min_diff, found.max_diff) == (80 - 200, 80 + 200)


def test_bounds_become_as_wide_as_the_ratio_needs() -> None:
    found = changed_limiter(fake.info("t", min_diff=36.0, max_diff=44.0), 16.0)
    assert (found.min_diff, found.max_diff) == (160 - 16, 160 + 16)


def test_what_is_given_counts() -> None:
    found = changed_limiter(fake.info("t"), 2.0, min_size=100, error_buffer=50.0)
    assert (found.samples_per_insert, found.min_size_to_sample) == (2.0, 100)
    assert (found.min_diff, found.max_diff) == (150.0, 250.0)


def test_a_bound_that_is_none_stays_none() -> None:
    found = changed_limiter(fake.info("t", max_diff=fake.NO_BOUND), 8.0)
    assert found.min_diff == -120.0
    assert found.max_diff == fake.NO_BOUND


@pytest.mark.parametrize(
    ("changes", "arguments", "text"),
    [
        ({"count_deletes": True}, (2.0,), "table 't': it is a queue or stack, whose items are sampled once"),
        (
            {"min_diff": -fake.NO_BOUND, "max_diff": fake.NO_BOUND},
            (2.0,),
            "table 't': its rate limiter has no bounds, so that no ratio is kept; give --error-buffer",
        ),
        ({}, (0.0,), "table 't': the ratio is 0.0; expected a finite number > 0"),
        ({}, (math.nan,), "table 't': the ratio is nan; expected a finite number > 0"),
        ({}, (math.inf,), "table 't': the ratio is inf; expected a finite number > 0"),
        ({}, (4.0, 0), "min_size_to_sample is 0; expected an integer"),
        ({}, (4.0, 10, 1.0), "error_buffer is 1.0; expected at least 4"),
    ],
    ids=["queue", "no bounds", "zero", "nan", "infinite", "no items", "too narrow"],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        changed_limiter(fake.info("t", **changes), *arguments)  # type: ignore[arg-type]
