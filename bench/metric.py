"""Metric: one number that a contender is measured by."""

import dataclasses
from typing import Literal

Better = Literal["less", "more"]


@dataclasses.dataclass(frozen=True)
class Metric:
    """One column of a table of results.

    Attributes:
        name: as in the JSON and in the heads of tables.
        unit: "ns", "bytes", "s", "/s" (of whatever the name says), or "" for a plain number.
        better: which way is up.
    """

    name: str
    unit: str
    better: Better


A_CALL = Metric("a call", "ns", "less")
INSERTS = Metric("inserts a second", "/s", "more")
SAMPLES = Metric("samples a second", "/s", "more")
SHARE = Metric("slowest writer's share", "", "more")  # of what a writer does on average
SLOWEST = Metric("slowest writer's inserts a second", "/s", "more")
OF_ITS_TIME = Metric("samples a second of its processor time", "/s", "more")
MEDIAN = Metric("p50", "ns", "less")
P99 = Metric("p99", "ns", "less")
P999 = Metric("p99.9", "ns", "less")
TAIL = Metric("p99 / p50", "", "less")
