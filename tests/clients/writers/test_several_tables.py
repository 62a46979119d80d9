"""Tables over the same steps, and tables that declare their items."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import check, client_of, live

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}
SHARED: dict[str, Any] = {"arena": "shared", "chunk_steps": 3, "max_streams": 2, "max_sessions": 4}
Three = tuple[TableHandle, TableHandle, TableHandle]


def step(k: int) -> dict[str, Any]:
    return {"observation": k, "reward": float(k), "terminated": False}


@pytest.fixture
def three() -> Iterator[Three]:
    """A uniform, a prioritised and a queue table over the same steps."""
    tables = [
        sr.Table("uniform", SIGNATURE, 1000, **SHARED),
        sr.Table("prioritised", SIGNATURE, 1000, sampler=sr.selectors.Prioritized(1.0), **SHARED),
        sr.Table.queue("queue", SIGNATURE, 5, **SHARED),
    ]
    with sr.Server(tables) as server, server.client() as client:
        handles = tuple(client.table(table.name) for table in tables)
        yield handles  # type: ignore[misc]
        assert check(handles[0]) == []


RULES = [
    sr.NStep(2),
    sr.Sequence(4, period=2, table="prioritised", priority=2.0),
    sr.Pattern(lambda past: {"last": past["observation"][-2:]}, table="queue"),
]


def test_one_stream_feeds_them_all_and_every_step_is_stored_once(three: Three) -> None:
    uniform, prioritised, queue = three
    with uniform.writer(patterns=RULES) as writer:
        for k in range(300):
            writer.append(step(k))
            if len(queue) == 5:
                assert queue.sample(5).data["last"][:, 1].tolist() == list(range(k - 4, k + 1))
        writer.end_episode({"observation": 300})
    assert live(uniform).data["next_observation"].tolist() == [*range(2, 301), 300]
    assert live(prioritised).data["observation"].tolist()[:-1] == [list(range(k, k + 4)) for k in range(0, 298, 2)]
    assert live(prioritised).priorities.tolist() == [2.0] * 150
    # 301 steps of 3 a chunk; the stream still holds its own window of them.
    assert uniform._arena.stats()["used_chunks"] <= 101 + 4


def test_removing_from_one_never_hurts_another(three: Three) -> None:
    uniform, prioritised, _ = three
    with prioritised.writer(patterns=[sr.NStep(3, table=name) for name in ("uniform", "prioritised")]) as writer:
        for k in range(100):
            writer.append(step(k))
        keys = uniform.keys()
        assert uniform.delete(keys[::2]) == 49
        assert check(uniform) == []
        prioritised.delete(prioritised.keys()[1::2])
    before = live(uniform).data["next_observation"].tolist()
    prioritised.reset()
    assert check(uniform) == []
    assert live(uniform).data["next_observation"].tolist() == before
    uniform.reset()
    with uniform.writer() as writer:  # a chunk goes when the last table has let go of it
        writer.append(step(0))
    assert uniform._arena.stats()["used_chunks"] == 0


def test_a_full_queue_keeps_the_others_items_out_too(three: Three) -> None:
    uniform, _, queue = three
    with uniform.writer(patterns=[sr.NStep(1), sr.NStep(1, table="queue")]) as writer:
        for k in range(6):
            writer.append(step(k))
        with pytest.raises(
            sr.RateLimitTimeout, match="table 'queue': append not admitted within 0 s: the queue is full"
        ):
            writer.append(step(6), timeout_s=0)
        assert (len(uniform), len(queue), writer.episode_steps) == (5, 5, 6)
        queue.sample(1)
        assert len(writer.append(step(6), timeout_s=0)) == 2
        assert live(uniform).data["next_observation"].tolist() == [1, 2, 3, 4, 5, 6]


def test_hand_made_items_go_to_any_of_them(three: Three) -> None:
    with three[0].writer(history=3) as writer:
        for k in range(3):
            writer.append(step(k))
        for name in ("uniform", "prioritised", "queue"):
            writer.create_item(trajectory={"x": writer.history["observation"][-2:]}, table=name)
    assert [live(table).data["x"].tolist() for table in three] == [[[1, 2]]] * 3


@pytest.mark.parametrize("commit_every", [1, 4])
def test_items_of_a_length_go_to_any_of_them(three: Three, commit_every: int) -> None:
    """As those of a table's own writer, with which they share its structure."""
    uniform, prioritised, _ = three
    with prioritised.writer(history=2) as own:
        own.append(step(7))
        own.append(step(8))
        own.create_item(length=2)
    with uniform.writer(history=3, commit_every=commit_every) as writer:
        for k in range(3):
            writer.append(step(k))
        writer.append({"observation": 3}, partial=True)  # an open row counts, and lacks columns there, too
        for name in ("prioritised", "queue", "uniform", None):
            writer.create_item(length=2, table=name, priority=3.0)
    for table, expected in zip(three, ([[2, 3], [2, 3]], [[7, 8], [2, 3]], [[2, 3]]), strict=True):
        found = live(table)
        assert found.data["observation"].tolist() == expected
        assert found.mask["reward"].tolist() == [[True, row != [2, 3]] for row in expected]
    assert prioritised.get(prioritised.keys()).priorities.tolist() == [1.0, 3.0]


@pytest.fixture
def squared() -> Iterator[tuple[TableHandle, TableHandle]]:
    """A table that draws by the priority's square, and a uniform one over the same steps."""
    tables = [
        sr.Table("squared", SIGNATURE, 1000, sampler=sr.selectors.Prioritized(2.0), **SHARED),
        sr.Table("uniform", SIGNATURE, 1000, **SHARED),
    ]
    with sr.Server(tables) as server, server.client() as client:
        yield client.table("squared"), client.table("uniform")


LEAST = 1e-200  # a priority that is all right for a uniform table; its square is 0


@pytest.mark.parametrize("ours", [0, 1])
@pytest.mark.parametrize("by_length", [True, False])
def test_a_priority_is_one_that_the_items_table_takes(
    squared: tuple[TableHandle, TableHandle], ours: int, by_length: bool
) -> None:
    """Whichever of the two the writer is of."""
    with squared[ours].writer(history=2) as writer:
        writer.append(step(0))
        how: dict[str, Any] = {"length": 1} if by_length else {"trajectory": {"x": writer.history["reward"][-1]}}
        writer.create_item(LEAST, table="uniform", **how)
        with pytest.raises(ValueError, match="table 'squared': priority is 1e-200; priorities must be finite"):
            writer.create_item(LEAST, table="squared", **how)
    assert (squared[1].get(squared[1].keys()).priorities.tolist(), len(squared[0])) == ([LEAST], 0)


def test_an_appends_priority_is_one_that_the_tables_of_its_items_take(
    squared: tuple[TableHandle, TableHandle],
) -> None:
    with squared[0].writer(patterns=[sr.Sequence(1, table="uniform")]) as writer:
        writer.append(step(0), priority=LEAST)
    with squared[1].writer(patterns=[sr.Sequence(1, table="squared")]) as writer:
        with pytest.raises(ValueError, match="the item's table does not take the priority that the call gave"):
            writer.append(step(0), priority=LEAST)
        assert writer.episode_steps == 0
        writer.append(step(0), priority=1.0)
    assert [table.get(table.keys()).priorities.tolist() for table in squared] == [[1.0], [LEAST]]


def test_items_of_a_length_that_another_table_does_not_take(three: Three) -> None:
    uniform, _, queue = three
    with uniform.writer(history=3) as writer:
        for k in range(3):
            writer.append(step(k))
        for _ in range(5):
            writer.create_item(length=1, table="queue")
        with pytest.raises(sr.RateLimitTimeout, match="table 'queue': create_item not admitted within 0 s: the queue"):
            writer.create_item(length=1, table="queue", timeout_s=0)
        queue.sample(1)
        writer.create_item(length=3, table="queue", timeout_s=0)
        writer.create_item(trajectory={"x": writer.history["reward"][-1]}, table="prioritised")
        with pytest.raises(
            sr.SignatureMismatch, match=r"table 'prioritised': its items are others, single steps \(made"
        ):
            writer.create_item(length=2, table="prioritised")
        with pytest.raises(sr.TableNotFound, match="no table 'elsewhere' over the same steps; create both with the"):
            writer.create_item(length=2, table="elsewhere")
    declared = [
        sr.Table("steps", SIGNATURE, 10, arena="own", item_steps=3),
        sr.Table("short", SIGNATURE, 10, arena="own", item_steps=2),
        sr.Table("nstep", SIGNATURE, 10, arena="own", item=sr.NStep(2)),
    ]
    with sr.Server(declared) as server, server.client() as client, client.table("steps").writer() as writer:
        for k in range(3):
            writer.append(step(k))
        with pytest.raises(ValueError, match="length is 3; table 'short' was declared with item_steps=2"):
            writer.create_item(length=3, table="short")
        with pytest.raises(sr.SignatureMismatch, match=r"table 'nstep': its items are Window.*length= makes others"):
            writer.create_item(length=3, table="nstep")
        assert writer.create_item(length=3, table="steps") != 0


def test_a_writer_of_a_table_with_shards_knows_its_table_by_name() -> None:
    with sr.Server([sr.Table("many", SIGNATURE, 10, shards=2)]) as server, server.client() as client:
        many = client.table("many")
        with many.writer(history=2) as writer:
            writer.append(step(0))
            writer.create_item(length=1, table="many")
            writer.create_item(length=1, table=None)
        assert len(many) == 2


def test_items_of_one_episode_have_its_id_within_a_table(three: Three) -> None:
    uniform, prioritised, _ = three
    with uniform.writer(patterns=[sr.NStep(1), sr.NStep(2, table="prioritised")]) as writer:
        for _ in range(2):
            for k in range(4):
                writer.append(step(k))
            writer.end_episode({"observation": 4})
    for table in (uniform, prioritised):
        episodes = live(table).episodes
        assert len(np.unique(episodes)) == 2
        assert (episodes[:4] == episodes[0]).all()
        assert live(table).steps.tolist() == [0, 1, 2, 3] * 2


@pytest.fixture
def declared() -> Iterator[tuple[TableHandle, TableHandle]]:
    """A table of items of 3 steps, and one whose first item sets the structure, over the same steps."""
    tables = [sr.Table("steps", SIGNATURE, 100, item=sr.NStep(3), **SHARED), sr.Table("any", SIGNATURE, 100, **SHARED)]
    with sr.Server(tables) as server, server.client() as client:
        yield client.table("steps"), client.table("any")


def test_a_table_s_item_is_what_its_writers_make(declared: tuple[TableHandle, TableHandle]) -> None:
    table, other = declared
    assert table.spec.item == sr.NStep(3)
    with table.writer() as writer:
        for k in range(5):
            writer.append(step(k))
        writer.end_episode({"observation": 5})
    assert live(table).data["observation"].tolist() == [0, 1, 2, 3, 4]
    with table.writer(patterns=[]) as writer:
        writer.append(step(0))
        writer.end_episode({"observation": 1})
    with other.writer(patterns=[sr.NStep(3, table="steps")]) as writer:
        writer.append(step(7))
        writer.end_episode({"observation": 8})
    assert live(table).data["observation"].tolist() == [0, 1, 2, 3, 4, 7]


def test_items_of_another_structure_are_refused_before_there_is_any(declared: tuple[TableHandle, TableHandle]) -> None:
    table, other = declared
    text = "makes items of another structure than table 'steps' declares; its item is Window(columns="
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        table.writer(patterns=[sr.NStep(1)])
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        other.writer(patterns=[sr.Sequence(3, table="steps")])
    with other.writer(history=3) as writer:
        writer.append(step(0))
        with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
            writer.create_item(trajectory={"x": writer.history["reward"][-1]}, table="steps")
    with table.writer() as writer:
        writer.append(step(0))
        with pytest.raises(sr.SignatureMismatch, match="as it declares; length= makes others"):
            writer.create_item(length=1)
    table.writer(patterns=[sr.NStep(3, priority=2.0)]).close()


EVERY_OTHER = sr.Pattern(
    lambda past: {"pair": past["observation"][-3:-1], "last": past["reward"][-1]},
    conditions=[sr.when.step_index % 2 == 0],
    priority="reward",
)


@pytest.fixture
def patterned() -> Iterator[tuple[sr.Client, TableHandle]]:
    """A table whose items are a pattern's, and one whose items are single steps of one column."""
    one = sr.Window({"observation": 0})
    tables = [sr.Table("pairs", SIGNATURE, 100, item=EVERY_OTHER), sr.Table("ones", SIGNATURE, 100, item=one)]
    with sr.Server(tables) as server, server.client() as client:
        yield client, client.table("pairs")


def test_a_table_s_item_may_be_a_pattern(patterned: tuple[sr.Client, TableHandle]) -> None:
    client, table = patterned
    assert (table.spec.item, table.spec.item_steps) == (EVERY_OTHER, 3)
    with table.writer() as writer:
        made = [len(writer.append(step(k))) for k in range(6)]
        assert made == [0, 0, 1, 0, 1, 0]
        writer.create_item(
            trajectory={"pair": writer.history["observation"][:2], "last": writer.history["reward"][-1]}, priority=7.0
        )
    assert live(table).data["pair"].tolist() == [[0, 1], [2, 3], [3, 4]]
    assert live(table).data["last"].tolist() == [2.0, 4.0, 5.0]
    assert live(table).priorities.tolist() == [2.0, 4.0, 7.0]
    other = sr.Pattern({"pair": ("observation", -1), "last": ("reward", -1)})
    with pytest.raises(sr.SignatureMismatch, match=r"than table 'pairs' declares; its item is Pattern\(select="):
        table.writer(patterns=[other])
    client.create_tables([sr.Table("pairs", SIGNATURE, 100, item=EVERY_OTHER)])  # the same table
    assert check(table) == []


def test_single_steps_are_refused_by_a_table_whose_items_are_declared(patterned: tuple[sr.Client, TableHandle]) -> None:
    client, table = patterned
    for refused in (table, client.table("ones")):
        with pytest.raises(ValueError, match="insert makes single-step items, but the table was declared with item=, "):
            refused.insert(step(0))
        assert len(refused) == 0


def test_the_same_tables_may_be_asked_for_again_and_others_may_not(declared: tuple[TableHandle, TableHandle]) -> None:
    client = client_of(declared[0])
    tables = [table.spec for table in declared]
    client.create_tables(tables)
    with pytest.raises((ValueError, sr.ShmReplayError), match=r"item: is Window\(.*, asked for None"):
        client.create_tables([sr.Table("steps", SIGNATURE, 100, item_steps=4, **SHARED), tables[1]])
