"""What rate limiters admit, as dm-reverb answered: can_insert(n) and can_sample(n) after every operation."""

from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.conformance.traces import Trace, load, table_of, trace_id
from tests.support.tables import TableMaker

COUNTS = (1, 2, 3, 7)  # the n of the recorded verdicts

# Some of the recorded limiters have bounds below min_size_to_sample * samples_per_insert, some wait for more items than
# the table may have, and their makers are warned.
pytestmark = [
    pytest.mark.filterwarnings("ignore:SampleToInsertRatio:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*sampling never starts:UserWarning"),
]


def do(table: TableHandle, op: str, last: Batch | None) -> Batch | None:
    """Does one operation, which must be admitted at once; returns the batch sampled last."""
    if op == "insert":
        table.insert({"value": 0}, timeout_s=0)
    elif op == "sample":
        return table.sample(1, timeout_s=0)
    elif op == "delete_last_sampled":
        table.delete([] if last is None else last.keys)
    elif op == "reset":
        table.reset()
    else:
        assert op == "start", op
    return last


def can_all_come(table: TableHandle, n: int) -> bool:
    """Whether the live items allow n samples, and stay as many as the limiter wants until the last of them."""
    most = table.spec.max_times_sampled
    if most == 0:
        return True
    keys = table.keys() if isinstance(table.spec.sampler, sr.selectors.Fifo) else table.keys()[::-1]
    allowed = np.cumsum(most - table.get(keys).times_sampled)
    gone = int(np.sum(allowed < n))
    return bool(n <= allowed[-1:].sum()) and len(table) - gone >= table.info().min_size_to_sample


def verdicts(table: TableHandle) -> dict[str, Any]:
    return {
        "can_insert": [table.can_insert(n) for n in COUNTS],
        "can_sample": [table.can_sample(n) for n in COUNTS],
        "size": len(table),
    }


@pytest.mark.parametrize("trace", load("limiters.json"), ids=trace_id)
def test_limiters_answer_as_recorded(make_table: TableMaker, trace: Trace) -> None:
    """One difference: can_sample(n) is False if the items do not allow n more samples, even if True was recorded.

    dm-reverb looks at the limiter alone: of two items that may be sampled once each it says that one can have three,
    and that a call goes on when its first sample has left fewer items than min_size_to_sample.
    """
    table = table_of(trace, make_table)
    last: Batch | None = None
    for number, op in enumerate(trace["ops"]):
        last = do(table, op["op"], last)
        expected = {
            "can_insert": op["can_insert"],
            "can_sample": [can and can_all_come(table, n) for n, can in zip(COUNTS, op["can_sample"], strict=True)],
            "size": op["size"],
        }
        assert (number, verdicts(table)) == (number, expected)


def test_can_sample_is_false_for_more_samples_than_the_items_allow(make_table: TableMaker) -> None:
    """Where dm-reverb says True, sample(3) would wait; so it does here, and hands out the two that there are."""
    table = make_table(signature={"value": np.int64(0)}, sampler=sr.selectors.Fifo(), max_times_sampled=1)
    for value in range(2):
        table.insert({"value": value})
    assert [table.can_sample(n) for n in (1, 2, 3)] == [True, True, False]
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.sample(3, timeout_s=0)
    assert raised.value.batch.data["value"].tolist() == [0, 1]
