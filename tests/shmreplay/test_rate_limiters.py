"""Rate limiters as values, and their arithmetic against recorded verdicts of the same names elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
import sys
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack, from_wire

MAX = sys.float_info.max
RECORD = json.loads((pathlib.Path(__file__).parents[1] / "data" / "limiters.json").read_text())


class Model:
    """A table of Fifo or Lifo selectors that counts as tables do."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.newest = spec["sampler"] == "lifo"
        self.max_size: int = spec["max_size"]
        self.max_times_sampled: int = spec["max_times_sampled"]
        self.limiter = made(spec["rate_limiter"])
        self.reset()

    def reset(self) -> None:
        self.items: dict[int, int] = {}  # key -> times sampled, in insertion order
        self.inserts = self.samples = self.deletes = 0
        self.last_sampled: int | None = None

    def insert(self) -> None:
        self.items[self.inserts] = 0
        self.inserts += 1
        if len(self.items) > self.max_size:
            self.delete(self.pick())

    def sample(self) -> None:
        key = self.last_sampled = self.pick()
        self.items[key] += 1
        self.samples += 1
        if self.items[key] == self.max_times_sampled:
            self.delete(key)

    def delete_last_sampled(self) -> None:
        if self.last_sampled in self.items:
            self.delete(self.last_sampled)

    def pick(self) -> int:
        return list(self.items)[-1 if self.newest else 0]

    def delete(self, key: int) -> None:
        unsampled = self.items.pop(key) == 0
        self.deletes += 1
        self.samples += unsampled and self.limiter.count_deletes

    def can_insert(self, n: int) -> bool:
        return self.limiter.can_insert(self.inserts, self.samples, self.deletes, n)

    def can_sample(self, n: int) -> bool:
        return self.limiter.can_sample(self.inserts, self.samples, self.deletes, n)

    def samples_left(self) -> float:
        """How many samples `max_times_sampled` still allows."""
        limit = self.max_times_sampled or math.inf
        return sum(limit - times for times in self.items.values())


def made(spec: dict[str, Any]) -> RateLimiter:
    if spec["kind"] == "min_size":
        return MinSize(spec["min_size_to_sample"])
    if spec["kind"] == "sample_to_insert_ratio":
        return SampleToInsertRatio(spec["samples_per_insert"], spec["min_size_to_sample"], spec["error_buffer"])
    return {"queue": Queue, "stack": Stack}[spec["kind"]](spec["size"])


@pytest.mark.parametrize("trace", RECORD["traces"], ids=lambda trace: f"seed{trace['seed']}")
@pytest.mark.filterwarnings("ignore:SampleToInsertRatio")
def test_the_verdicts_are_those_recorded(trace: dict[str, Any]) -> None:
    model = Model(trace["table"])
    for step, op in enumerate(trace["ops"]):
        if op["op"] != "start":
            getattr(model, op["op"])()
        assert len(model.items) == op["size"], step
        assert [model.can_insert(n) for n in RECORD["n"]] == op["can_insert"], step
        # The record looks at the limiter alone, so the limiter's verdict is compared; what a table answers
        # besides takes account of how many samples the items still allow.
        assert [model.can_sample(n) for n in RECORD["n"]] == op["can_sample"], step


@pytest.mark.filterwarnings("ignore:SampleToInsertRatio")
def test_the_record_admits_more_samples_than_its_items_allow() -> None:
    # What a table must correct: two items that may be sampled once each do not give three samples.
    corrected = 0
    for trace in RECORD["traces"]:
        model = Model(trace["table"])
        for op in trace["ops"][1:]:
            getattr(model, op["op"])()
            pairs = zip(RECORD["n"], op["can_sample"], strict=True)
            corrected += sum(verdict and n > model.samples_left() for n, verdict in pairs)
    assert corrected > 0


def test_the_worked_example_of_a_ratio_of_one_and_a_half() -> None:
    limiter = RateLimiter(1.5, 2, 0.0, 5.0)
    assert [limiter.can_insert(0, 0, 0, n) for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert not limiter.can_insert(3, 0, 0, 1)
    assert limiter.can_insert(3, 2, 0, 1)
    assert not limiter.can_insert(3, 2, 0, 2)


def test_the_worked_example_of_a_difference_below_zero() -> None:
    limiter = RateLimiter(1.0, 1, -1.0, 1.0)
    assert [limiter.can_sample(1, 0, 0, n) for n in (1, 2, 3)] == [True, True, False]


def test_deletes_below_the_minimum_size_bring_the_warm_up_back() -> None:
    limiter = RateLimiter(1.0, 3, 0.0, 4.0)
    assert not limiter.can_insert(4, 0, 0, 1)
    assert limiter.can_insert(4, 0, 2, 1)
    assert not limiter.can_sample(4, 0, 2, 1)


def test_a_minimum_size_never_stops_an_insert() -> None:
    limiter = MinSize(100)
    assert limiter.can_insert(2**62, 0, 0, 2**31)
    assert not limiter.can_sample(99, 0, 0, 1)
    assert limiter.can_sample(100, 2**62, 0, 2**31)


@pytest.mark.parametrize("verdict", [MinSize(1).can_insert, MinSize(1).can_sample])
@pytest.mark.parametrize("n", [0, -1])
def test_asking_for_no_item_is_refused(verdict: Any, n: int) -> None:
    with pytest.raises(ValueError, match=f"n is {n}; expected the number of items, >= 1"):
        verdict(0, 0, 0, n)


def test_each_limiter_is_its_numbers() -> None:
    queue = {
        "samples_per_insert": 1.0,
        "min_size_to_sample": 1,
        "min_diff": 0.0,
        "max_diff": 7.0,
        "count_deletes": True,
    }
    assert Queue(7).numbers() == queue
    assert Stack(7).numbers() == queue
    assert list(MinSize(3).numbers().values()) == [1.0, 3, -MAX, MAX, False]
    assert list(SampleToInsertRatio(2, 10, 5).numbers().values()) == [2.0, 10, 15.0, 25.0, False]
    assert list(SampleToInsertRatio(2, 10, (1, 30)).numbers().values()) == [2.0, 10, 1.0, 30.0, False]


def test_infinite_bounds_become_the_largest_finite_numbers() -> None:
    limiter = RateLimiter(1, 1, -math.inf, math.inf)
    assert (limiter.min_diff, limiter.max_diff) == (-MAX, MAX)


LIMITERS = [
    RateLimiter(0.5, 3, -2.5, 9.0),
    RateLimiter(1, 1, -math.inf, math.inf),
    MinSize(12),
    SampleToInsertRatio(0.1, 1000, 50.0),
    Queue(10),
    Stack(2**31 - 1),
]


@pytest.mark.parametrize("limiter", LIMITERS, ids=repr)
def test_a_limiter_comes_back_from_its_wire_form_in_its_class(limiter: RateLimiter) -> None:
    again = from_wire(msgpack.unpackb(msgpack.packb(limiter.to_wire())))
    assert type(again) is type(limiter)
    assert again == limiter
    assert hash(again) == hash(limiter)


def test_its_text_is_how_to_make_it() -> None:
    for limiter in LIMITERS[2:]:
        assert eval(repr(limiter)) == limiter
    assert repr(Queue(10)) == "Queue(10)"
    assert Queue(10).size == 10


def test_its_text_calls_a_bound_that_is_none_infinite() -> None:
    assert repr(RateLimiter(2.0, 1, -math.inf, 5.0)) == (
        "RateLimiter(samples_per_insert=2.0, min_size_to_sample=1, min_diff=-inf, max_diff=5.0)"
    )
    assert repr(RateLimiter(2.0, 1, 0.0, math.inf)).endswith("min_diff=0.0, max_diff=inf)")
    ratio = SampleToInsertRatio(1.0, 1, error_buffer=(-math.inf, math.inf))
    assert repr(ratio) == "SampleToInsertRatio(1.0, 1, error_buffer=(-inf, inf))"


def test_limiters_of_the_same_numbers_but_other_names_differ() -> None:
    assert Queue(3) != Stack(3)
    assert MinSize(1) != RateLimiter(1.0, 1, -MAX, MAX)


@pytest.mark.parametrize("limiter", LIMITERS, ids=repr)
def test_a_limiter_is_frozen(limiter: RateLimiter) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        limiter.max_diff = 3.0  # type: ignore[misc]


@given(st.floats(0.01, 100), st.integers(1, 1000), st.floats(0, 1e6))
def test_a_ratio_admits_samples_at_its_minimum_size(ratio: float, min_size: int, extra: float) -> None:
    limiter = SampleToInsertRatio(ratio, min_size, max(1.0, ratio) * 1.001 + extra)
    assert limiter.can_insert(0, 0, 0, min_size)
    assert limiter.can_sample(min_size, 0, 0, 1)
    assert from_wire(limiter.to_wire()) == limiter


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RateLimiter(0, 1, 0, 1), "RateLimiter: samples_per_insert is 0.0; expected a finite number > 0"),
        (
            lambda: RateLimiter(math.inf, 1, 0, 1),
            "RateLimiter: samples_per_insert is inf; expected a finite number > 0",
        ),
        (lambda: RateLimiter(1, 0, 0, 1), "RateLimiter: min_size_to_sample is 0; expected an integer in 1..2147483647"),
        (lambda: RateLimiter(1, 1, math.nan, 1), "RateLimiter: min_diff is nan; expected a number"),
        (lambda: RateLimiter(1, 1, 0, math.nan), "RateLimiter: max_diff is nan; expected a number"),
        (lambda: RateLimiter(1, 1, 2, 1), "RateLimiter: min_diff is 2.0, above max_diff 1.0; nothing would ever be ad"),
        (lambda: MinSize(0), "MinSize: min_size_to_sample is 0; expected an integer in 1.."),
        (lambda: Queue(0), "Queue: size is 0; expected an integer in 1.."),
        (lambda: Stack(-1), "Stack: size is -1; expected an integer in 1.."),
        (lambda: SampleToInsertRatio(-1, 1, 5), "SampleToInsertRatio: samples_per_insert is -1.0; expected a finite"),
        (lambda: SampleToInsertRatio(1, 0, 5), "SampleToInsertRatio: min_size_to_sample is 0; expected an integer in"),
        (lambda: SampleToInsertRatio(1, 1, -5), "error_buffer is -5; expected at least 1 (max(1, samples_"),
        (lambda: SampleToInsertRatio(1, 1, (1, 2, 3)), "error_buffer is (1, 2, 3); expected a number or (min_diff, m"),  # type: ignore[arg-type]
        (lambda: SampleToInsertRatio(1, 1, (5, 2)), "SampleToInsertRatio: min_diff is 5.0, above max_diff 2.0"),
        (lambda: SampleToInsertRatio(8, 100, 1), "error_buffer is 1; expected at least 8 (max(1, samples_per_insert))"),
        (lambda: SampleToInsertRatio(0.5, 10, 0.9), "error_buffer is 0.9; expected at least 1 (max(1, samples_"),
        (lambda: SampleToInsertRatio(4, 10, (37, 44.9)), "expected them to be at least 8.0 apart (2 * max(1, sampl"),
        (lambda: SampleToInsertRatio(0.5, 10, (4.1, 5.9)), "error_buffer leaves differences in (4.1, 5.9); expected"),
        (lambda: SampleToInsertRatio(1, 10, (11, 20)), "all above 10.0 = min_size_to_sample * samples_per_insert; exp"),
    ],
)
def test_a_limiter_that_cannot_work_is_refused_with_the_numbers(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RateLimiter("1", 1, 0, 1), "RateLimiter: samples_per_insert is '1'; expected a number"),  # type: ignore[arg-type]
        (lambda: MinSize(1.5), "MinSize: min_size_to_sample is 1.5; expected an integer in"),  # type: ignore[arg-type]
        (lambda: Queue(True), "Queue: size is True; expected an integer in"),
        (lambda: SampleToInsertRatio(1, 1, None), "SampleToInsertRatio: error_buffer is None; expected a number"),  # type: ignore[arg-type]
    ],
)
def test_a_limiter_of_the_wrong_types_is_refused(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        make()


def test_a_ratio_that_stops_a_lone_thread_is_warned_about_once() -> None:
    with pytest.warns(UserWarning, match="all below 10.0 = min_size_to_sample.*will wait for itself") as caught:
        limiter = SampleToInsertRatio(1, 10, (0, 5))
    assert caught[0].filename == __file__
    assert from_wire(limiter.to_wire()) == limiter  # and here no warning, or the test fails by it


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "TokenBucket"}, "rate limiter: unknown kind 'TokenBucket'; expected a limiter of"),
        ({"kind": "Queue", "max_diff": 0.0}, "Queue: size is 0; expected an integer in 1.."),
        ({"kind": "SampleToInsertRatio", "max_diff": 1.0}, "SampleToInsertRatio: error_buffer leaves differences in"),
        ({"min_diff": 9.0}, "RateLimiter: min_diff is 9.0, above max_diff 7.0"),
    ],
)
def test_a_malformed_wire_form_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        from_wire({**RateLimiter(1, 1, 0, 7).to_wire(), **change})


@pytest.mark.parametrize("name", ["kind", "samples_per_insert", "min_size_to_sample", "min_diff", "max_diff"])
def test_a_wire_form_that_lacks_a_number_is_refused(name: str) -> None:
    wire = Queue(7).to_wire()
    del wire[name]
    with pytest.raises(ValueError, match=f"rate limiter: malformed, expected a map with '{name}'"):
        from_wire(wire)
