"""Traces of dm-reverb in tests/data, and the tables they were recorded on."""

import json
import pathlib
from typing import Any

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
SIGNATURE = {"value": sr.ArraySpec((), "int64")}
SELECTORS: dict[str, sr.selectors.Selector] = {
    "fifo": sr.selectors.Fifo(),
    "lifo": sr.selectors.Lifo(),
    "min_heap": sr.selectors.MinHeap(),
    "max_heap": sr.selectors.MaxHeap(),
}

Trace = dict[str, Any]


def load(name: str) -> list[Trace]:
    """The traces of a file, each with the table it was recorded on and the operations with what they answered."""
    with open(DATA / name, encoding="utf-8") as file:
        traces: list[Trace] = json.load(file)["traces"]
    return traces


def trace_id(trace: Trace) -> str:
    """A trace's name in a test's id."""
    table = trace["table"]
    parts = [table["sampler"], table["remover"], table["rate_limiter"]["kind"], f"times{table['max_times_sampled']}"]
    return "-".join([str(trace["seed"]), *parts])


def limiter(spec: dict[str, Any]) -> sr.rate_limiters.RateLimiter:
    """The limiter that a trace describes."""
    kind = spec["kind"]
    if kind == "min_size":
        return sr.rate_limiters.MinSize(spec["min_size_to_sample"])
    if kind == "queue":
        return sr.rate_limiters.Queue(spec["size"])
    if kind == "stack":
        return sr.rate_limiters.Stack(spec["size"])
    assert kind == "sample_to_insert_ratio", kind
    error = spec["error_buffer"]
    return sr.rate_limiters.SampleToInsertRatio(
        spec["samples_per_insert"], spec["min_size_to_sample"], tuple(error) if isinstance(error, list) else error
    )


def table_of(trace: Trace, make_table: TableMaker) -> TableHandle:
    """A new, empty table as the trace describes."""
    spec = trace["table"]
    return make_table(
        spec["max_size"],
        signature=SIGNATURE,
        sampler=SELECTORS[spec["sampler"]],
        remover=SELECTORS[spec["remover"]],
        max_times_sampled=spec["max_times_sampled"],
        rate_limiter=limiter(spec["rate_limiter"]),
    )
