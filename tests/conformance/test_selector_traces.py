"""Which item is sampled and which makes room, as dm-reverb answered: every operation of every trace."""

from typing import Any

import numpy as np
import pytest

from shmreplay.clients.tables.table import TableHandle
from tests.conformance.traces import Trace, load, table_of, trace_id
from tests.support.tables import TableMaker

pytestmark = pytest.mark.filterwarnings("ignore:.*update_priorities hit none:UserWarning")


class Replay:
    """Does what a trace says and answers as it is recorded."""

    def __init__(self, table: TableHandle) -> None:
        self.table = table
        self._keys: dict[int, int] = {}  # by value, learned when it was last sampled

    def do(self, op: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"op": op["op"], **getattr(self, f"_{op['op']}")(op), "size": len(self.table)}
        assert self.table.info().size == answer["size"]
        return answer

    def _insert(self, op: dict[str, Any]) -> dict[str, Any]:
        self.table.insert({"value": op["value"]}, op["priority"], timeout_s=0)
        return {"value": op["value"], "priority": op["priority"]}

    def _sample(self, op: dict[str, Any]) -> dict[str, Any]:
        batch = self.table.sample(1, timeout_s=0)
        value = int(batch.data["value"][0])
        self._keys[value] = int(batch.keys[0])
        return {
            "value": value,
            "priority": float(batch.priorities[0]),
            "times_sampled": int(batch.times_sampled[0]),
            "probability": float(batch.probabilities[0]),
            "table_size": int(batch.table_size[0]),
        }

    def _update(self, op: dict[str, Any]) -> dict[str, Any]:
        keys = np.array([self._keys[op["value"]]], np.int64)
        was_there = len(self.table.get(keys))
        assert self.table.update_priorities(keys, [op["priority"]]) == was_there
        return {"value": op["value"], "priority": op["priority"]}

    def _delete(self, op: dict[str, Any]) -> dict[str, Any]:
        keys = np.array([self._keys[op["value"]]], np.int64)
        was_there = len(self.table.get(keys))
        assert self.table.delete(keys) == was_there
        return {"value": op["value"]}

    def drain(self) -> list[int]:
        """The values that come when sampling and deleting until the table is empty."""
        values = []
        while len(self.table) > 0:
            batch = self.table.sample(1, timeout_s=0)
            values.append(int(batch.data["value"][0]))
            self.table.delete(batch.keys)  # gone already if that was its last sample
        return values


@pytest.mark.parametrize("trace", load("selectors.json"), ids=trace_id)
def test_selectors_answer_as_recorded(make_table: TableMaker, trace: Trace) -> None:
    replay = Replay(table_of(trace, make_table))
    for number, op in enumerate(trace["ops"]):
        assert (number, replay.do(op)) == (number, op)
    assert replay.drain() == trace["drain"]
