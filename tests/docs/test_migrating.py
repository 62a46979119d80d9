"""What docs/migrating-from-reverb.md says: each of Reverb's halves has one of ours, and what differs is as it says."""

import ast
import dataclasses
import re

import numpy as np
import pytest

import shmreplay as sr
from tests.docs.test_docs import PAGES

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

PAGE = PAGES["migrating-from-reverb.md"]


def test_a_half_of_ours_follows_each_of_reverbs() -> None:
    languages = re.findall(r"^```(py|python)$", PAGE, re.MULTILINE)
    assert len(languages) >= 12
    assert languages == ["py", "python"] * (len(languages) // 2)
    for block in re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        ast.parse(block)


def test_the_calls_that_it_names_exist() -> None:
    classes = {"client": sr.Client, "table": sr.TableHandle, "writer": sr.Writer, "server": sr.Server}
    rows = re.findall(r"^\| `[^|]*\| ([^|]*) \|", PAGE, re.MULTILINE)
    named = {call for row in rows for call in re.findall(r"`(client|table|writer|server)\.(\w+)", row)}
    assert len(named) >= 15
    for handle, call in named:
        assert hasattr(classes[handle], call), f"{handle}.{call}"


def test_what_it_says_of_reverbs_faults_holds_here() -> None:
    selector, limiter = sr.selectors.Fifo(), sr.rate_limiters.MinSize(1)
    step = {"x": sr.ArraySpec((), "int64")}
    tables = [
        sr.Table("a", step, 10, sampler=selector, remover=selector, rate_limiter=limiter),
        sr.Table("b", step, 10, sampler=sr.selectors.Prioritized(1.0), rate_limiter=limiter),
        sr.Table.queue("queue", step, 10),
    ]
    with sr.Server(tables) as server, server.client() as client:
        plain, prioritised, queue = (client.table(table.name) for table in tables)
        with plain.writer(history=3) as writer:
            for i in range(3):
                writer.append({"x": i})
            history = writer.history["x"]
            with pytest.raises(IndexError):
                history[3]
            assert history[:3].numpy().tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="priority is -1"):
            prioritised.insert({"x": 1}, -1.0)
        prioritised.insert({"x": 2})
        assert prioritised.sample(1, timeout_s=0).data["x"].tolist() == [2]
        with pytest.raises(ValueError, match="n is 0"):
            plain.can_sample(0)
        keys = queue.insert_batch({"x": np.arange(10)})
        assert queue.delete(keys[:5]) == 5
        assert queue.can_insert(5)


def test_a_table_is_replaced_as_it_says() -> None:
    table = sr.Table("a", {"x": sr.ArraySpec((), "int64")}, 10, sampler=sr.selectors.Lifo())
    larger = dataclasses.replace(table, max_size=20)
    assert (larger.max_size, larger.sampler, larger.sig) == (20, table.sampler, table.sig)
