"""Which items patterns make, as dm-reverb answered: every trace, with several sizes of chunks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.conformance.traces import load

TRACES = load("patterns.json")
SIGNATURE = {"a": sr.ArraySpec((), "int64"), "b": sr.ArraySpec((2,), "float32")}
TERMS: dict[str, Any] = {"step_index": sr.when.step_index, "steps_since_applied": sr.when.steps_since_applied}


def condition(recorded: dict[str, Any]) -> Any:
    """The recorded condition, made with `when`."""
    if recorded["kind"] == "is_end_episode":
        return sr.when.end_of_episode
    term, how = recorded["kind"].rsplit("_", 1)
    makers: dict[str, Callable[[Any], Any]] = {
        "ge": lambda left: left >= recorded["value"],
        "mod": lambda left: left % recorded["mod"] == recorded["value"],
    }
    return makers[how](TERMS[term])


def pattern(config: dict[str, Any]) -> sr.Pattern:
    """The recorded rule."""
    select = {
        name: (part["column"], part["index"])
        if "index" in part
        else (part["column"], slice(part["start"], part["stop"], part["step"]))
        for name, part in config["pattern"].items()
    }
    return sr.Pattern(select, table=config["table"], conditions=[condition(c) for c in config["conditions"]])


def items(client: sr.Client, name: str) -> list[dict[str, Any]]:
    """The items of a table in insertion order, without their padding."""
    table = client.table(name)
    batch = table.get(table.keys())
    made = []
    for i in range(len(batch)):
        item = {}
        for output, values in batch.data.items():
            real = batch.mask[output][i]
            item[output] = (values[i][real] if np.ndim(real) else values[i]).tolist()
        made.append(item)
    return made


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.one_quick
def test_patterns_make_the_items_that_were_recorded(chunk_steps: int) -> None:
    names = {config["table"] for trace in TRACES for config in trace["configs"]}
    tables = [
        sr.Table(f"s{i}-{name}", SIGNATURE, 1000, arena=f"s{i}", chunk_steps=chunk_steps, max_streams=2, max_sessions=8)
        for i in range(len(TRACES))
        for name in sorted(names)
    ]
    with sr.Server(tables) as server, server.client() as client:
        for i, trace in enumerate(TRACES):
            configs = [{**config, "table": f"s{i}-{config['table']}"} for config in trace["configs"]]
            replay(client, trace, configs)
            for name in sorted({config["table"] for config in trace["configs"]}):
                assert items(client, f"s{i}-{name}") == trace["items"].get(name, []), (trace["seed"], name)
            assert client.table(configs[0]["table"])._arena.check() == []


def replay(client: sr.Client, trace: dict[str, Any], configs: list[dict[str, Any]]) -> None:
    """Appends the steps of a trace: step k has a = k and b = [k / 2, -k]."""
    k = 0
    with client.table(configs[0]["table"]).writer(history=64, patterns=[pattern(c) for c in configs]) as writer:
        for episode in trace["episodes"]:
            for _ in range(episode["steps"]):
                writer.append({"a": k, "b": np.array([k / 2, -k], np.float32)})
                k += 1
            writer.end_episode(clear_history=episode["clear_buffers"])
