"""Metric: one number that is measured for each contender."""

import dataclasses
from typing import Literal

Better = Literal["less", "more"]


@dataclasses.dataclass(frozen=True)
class Metric:
    """One column of a table of results.

    Attributes:
        name: its name in the JSON and in the heads of tables.
        unit: "ns", "bytes", "s", "/s" (per second, of what the name says), or "" for a plain number.
        better: "less" or "more".
    """

    name: str
    unit: str
    better: Better


A_CALL = Metric("a call", "ns", "less")
INSERTS = Metric("inserts a second", "/s", "more")
SAMPLES = Metric("samples a second", "/s", "more")
SHARE = Metric("slowest writer's share", "", "more")  # divided by the average of all writers
SLOWEST = Metric("slowest writer's inserts a second", "/s", "more")
OF_ITS_TIME = Metric("samples a second of its processor time", "/s", "more")
MEDIAN = Metric("p50", "ns", "less")
P99 = Metric("p99", "ns", "less")
P999 = Metric("p99.9", "ns", "less")
TAIL = Metric("p99 / p50", "", "less")
