"""A rate limiter with another ratio."""

import math
import re
from typing import Any

import pytest

from shmreplay.rate_limiters import MinSize, SampleToInsertRatio
from shmreplay.rules.limiter_change import changed_limiter, whole_limiter
from shmreplay.tables.shards import limiter_part
from tests.support import fake_stats as fake


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


def test_the_limiter_of_a_table_with_shards_is_the_sum_of_its_parts() -> None:
    whole = SampleToInsertRatio(4.0, 11, 200.0)
    parts = [fake.info(f"t~{number}", **limiter_part(whole, 3, number).numbers()) for number in range(3)]
    found = changed_limiter(whole_limiter("t", parts), 4.0)
    assert (found.samples_per_insert, found.min_size_to_sample) == (4.0, 11)
    assert (found.min_diff, found.max_diff) == pytest.approx((whole.min_diff, whole.max_diff))
    free = [fake.info(f"t~{number}", **limiter_part(MinSize(6), 3, number).numbers()) for number in range(3)]
    with pytest.raises(ValueError, match=r"^table 't': its rate limiter has no bounds"):
        changed_limiter(whole_limiter("t", free), 4.0)


def test_a_bound_that_is_none_stays_none() -> None:
    found = changed_limiter(fake.info("t", max_diff=fake.NO_BOUND), 8.0)
    assert found.min_diff == -120.0
    assert found.max_diff == fake.NO_BOUND


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("many",), "table 't': the ratio is 'many'; expected a number"),
        ((2.0, "ten"), "table 't': min_size_to_sample is 'ten'; expected an integer"),
        ((2.0, 10, "wide"), "error_buffer is 'wide'; expected a number"),
    ],
    ids=["ratio", "size", "buffer"],
)
def test_what_is_no_number_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        changed_limiter(fake.info("t"), *arguments)


@pytest.mark.parametrize(
    ("changes", "arguments", "text"),
    [
        ({"count_deletes": True}, (2.0,), "table 't': it is a queue or stack, whose items are sampled once"),
        (
            {"min_diff": -fake.NO_BOUND, "max_diff": fake.NO_BOUND},
            (2.0,),
            "table 't': its rate limiter has no bounds, so it keeps no ratio; give an error buffer",
        ),
        ({}, (0.0,), "table 't': the ratio is 0.0; expected a finite number > 0"),
        ({}, (math.nan,), "table 't': the ratio is nan; expected a number"),
        ({}, (math.inf,), "table 't': the ratio is inf; expected a finite number > 0"),
        ({}, (4.0, 0), "min_size_to_sample is 0; expected an integer"),
        ({}, (4.0, 10, 1.0), "error_buffer is 1.0; expected at least 4"),
    ],
    ids=["queue", "no bounds", "zero", "nan", "infinite", "no items", "too narrow"],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        changed_limiter(fake.info("t", **changes), *arguments)  # type: ignore[arg-type]
