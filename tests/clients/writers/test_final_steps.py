"""Final steps and what bootstraps from them: when an episode needs one, with which columns, and n-step targets."""

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.clients.writers.rewarded import SIGNATURE, step
from tests.support.tables import TableMaker, live


@pytest.mark.parametrize("rule", [sr.Transition(), sr.NStep(3), sr.NStep(2, {"observation": 2})])
def test_a_truncated_episode_needs_its_final_step(make_table: TableMaker, rule: sr.Window) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[rule]) as writer:
        writer.append(step(0))
        writer.append(step(1, truncated=True))
        with pytest.raises(
            sr.ShmReplayError, match=r"not terminated.*its next 'observation' is missing; give it, end_episode\(final_"
        ):
            writer.end_episode()
        with pytest.raises(sr.ShmReplayError, match=r"the last step was terminated or truncated; call end_episode\(\)"):
            writer.append(step(2))
        writer.end_episode({"observation": 2})
    assert np.ravel(live(table).data["next_observation"])[-1] == 2


def test_a_window_that_looks_at_no_next_step_needs_no_final_one(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.Sequence(2)]) as writer:
        writer.append(step(0, truncated=True))
        assert len(writer.end_episode()) == 1


NESTED = {
    "observation": {"a": sr.ArraySpec((), "int64"), "b": sr.ArraySpec((), "int64")},
    "achieved": sr.ArraySpec((), "int64"),
    "truncated": sr.ArraySpec((), "bool"),
}


def nested(k: int, *, truncated: bool = False) -> dict[str, Any]:
    return {"observation": {"a": k, "b": -k}, "achieved": 10 * k, "truncated": truncated}


@pytest.mark.parametrize(
    ("final", "lacking"),
    [
        ({"observation": {"b": -1}, "achieved": 10}, "observation/a"),
        ({"observation": {"a": 1, "b": -1}}, "achieved"),
        ({"achieved": 10}, "observation/a"),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_a_final_step_has_every_column_whose_next_step_is_shown(
    make_table: TableMaker, final: dict[str, Any], lacking: str, kept: bool
) -> None:
    table = make_table(100, signature=NESTED)
    whole = {"observation": {"a": 1, "b": -1}, "achieved": 10}
    with table.writer(patterns=[sr.Transition(next=("observation", "achieved"))]) as writer:
        writer.append(nested(0, truncated=True))
        if kept:
            writer.append({"achieved": final["achieved"]} if "achieved" in final else {}, partial=True)
            final = {name: value for name, value in final.items() if name != "achieved"}
            whole = {name: value for name, value in whole.items() if name != "achieved" or lacking == "achieved"}
        for _ in range(2):
            with pytest.raises(sr.ShmReplayError, match=f"its next '{lacking}' is missing; give it, end_episode"):
                writer.end_episode(final or None)
        assert len(writer.end_episode(whole)) == 1
    data = live(table).data
    assert (data["next_observation"]["a"].tolist(), data["next_achieved"].tolist()) == ([1], [10])


def test_columns_under_another_name_need_no_cell_of_the_final_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(
        patterns=[sr.Window({"r": ("reward", 0, 2), "o": ("observation", 0, 2)}, at_end="pad")]
    ) as writer:
        writer.append(step(0, truncated=True))
        with pytest.raises(sr.ShmReplayError, match="is missing; give it"):
            writer.end_episode()
        writer.end_episode({"observation": 1})
    assert live(table).mask["r"].tolist() == [[True, False]]
    of_no_next = make_table(100, signature=SIGNATURE)
    with of_no_next.writer(patterns=[sr.Window({"r": ("reward", 0), "stack": ("observation", -1, 1)})]) as writer:
        writer.append(step(0))
        writer.append(step(1))
        writer.end_episode()
    assert live(of_no_next).data["stack"].tolist() == [[0, 1]]


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_a_reset_in_mid_episode_needs_the_final_step(make_table: TableMaker, name: str) -> None:
    signature = {"observation": sr.ArraySpec((), "int64"), name: sr.ArraySpec((), "bool")}
    table = make_table(100, signature=signature)
    with table.writer(patterns=[sr.NStep(2)]) as writer:
        assert len(writer.end_episode()) == 0  # no step, no next one
        writer.append({"observation": 0, name: False})
        with pytest.raises(sr.ShmReplayError, match=r"not terminated.*its next 'observation' is missing; give it"):
            writer.end_episode()
        writer.append({"observation": 1, name: False})
        writer.end_episode({"observation": 2})
        assert len(writer.end_episode()) == 0
    assert live(table).data["next_observation"].tolist() == [2, 2]


@pytest.mark.parametrize("truncated", [False, True])
def test_a_terminated_one_may_lack_it_and_its_next_observation_is_masked(
    make_table: TableMaker, truncated: bool
) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.Transition()]) as writer:
        writer.append(step(0))
        writer.append(step(1, terminated=True, truncated=truncated))
        writer.end_episode()
    batch = live(table)
    assert batch.data["next_observation"].tolist() == [1, 0]
    assert batch.mask["next_observation"].tolist() == [True, False]
    assert sr.n_step_targets(batch, 0.9).discounts.tolist() == [0.9, 0.0]


def test_targets_want_the_ends_that_the_table_has(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.writer(patterns=[sr.NStep(2)]) as writer:
        for k in range(4):
            writer.append(step(k, terminated=k == 3))
        writer.end_episode()
    text = re.escape(
        "the batch has no 'terminated', but its table does, and the discounts depend on it; add it to columns="
    )
    shown = ["reward", "next_observation"]
    mixed = sr.mix([(table, 4)])
    for batch in (table.sample(4, columns=shown), mixed.sample(columns=shown)):
        with pytest.raises(ValueError, match=text):
            sr.n_step_targets(batch, 0.9)
    assert len(sr.n_step_targets(table.sample(4, columns=[*shown, "terminated"]), 0.9).returns) == 4


def test_targets_of_a_table_without_ends_want_a_next_step(make_table: TableMaker) -> None:
    signature = {
        "observation": {"a": sr.ArraySpec((), "int64"), "b": sr.ArraySpec((), "int64", optional=True)},
        "reward": sr.ArraySpec((), "float32"),
    }
    table = make_table(100, signature=signature)
    with table.writer(patterns=[sr.NStep(2)]) as writer:
        writer.append({"observation": {"a": 1, "b": None}, "reward": 0.0})
        writer.end_episode({"observation": {"a": 2}})
        assert sr.n_step_targets(live(table), 0.9).num_steps.tolist() == [1]
        writer.append({"observation": {"a": 3, "b": 3}, "reward": 0.0})
        writer.end_episode()
    with pytest.raises(ValueError, match=r"'next_observation' is masked in rows \[1\], which did not terminate"):
        sr.n_step_targets(live(table), 0.9)


@pytest.mark.parametrize("n", [1, 3])
def test_targets_of_a_table_are_those_of_a_plain_loop(make_table: TableMaker, n: int) -> None:
    table = make_table(1000, signature=SIGNATURE)
    rng, expected = np.random.default_rng(n), []
    with table.writer(patterns=[sr.NStep(n)]) as writer:
        for ending in ("terminated", "truncated", "both") * 3:
            length = int(rng.integers(1, 7))
            first = int(rng.integers(0, 1000))
            for t in range(length):
                is_last = t == length - 1
                flags = {name: is_last and ending in (name, "both") for name in ("terminated", "truncated")}
                writer.append(step(first + t, **flags))
            writer.end_episode({"observation": first + length})
            for t in range(length):
                end = min(t + n, length)
                value = sum(0.9**k * (first + t + k) for k in range(end - t))
                discount = 0.0 if end == length and ending != "truncated" else 0.9 ** (end - t)
                expected.append((first + t, value, discount, end - t, first + end))
    batch = live(table)
    targets = sr.n_step_targets(batch, 0.9)
    # Those of an episode's end come behind those that a step completed, in the order of their reference steps.
    columns = (batch.data["observation"], *targets, batch.data["next_observation"])
    np.testing.assert_allclose(np.array(columns).T, np.array(expected), rtol=1e-6)


def test_one_step_n_steps_are_transitions_bit_for_bit(make_table: TableMaker) -> None:
    batches = []
    for rule in (sr.NStep(1), sr.Transition()):
        table = make_table(100, signature=SIGNATURE)
        with table.writer(patterns=[rule]) as writer:
            for k in range(5):
                writer.append(step(k))
            writer.end_episode({"observation": 5})
        batches.append(live(table))
    for name in batches[0].data:
        assert batches[0].data[name].tobytes() == batches[1].data[name].tobytes()
        assert batches[0].data[name].shape == (5,)
