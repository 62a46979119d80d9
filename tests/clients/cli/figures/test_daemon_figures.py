"""What client.stats() says, by table and by process."""

import pytest

import shmreplay as sr
from shmreplay.clients.cli.figures.daemon_figures import Figures, arena_state
from tests.support import fake_stats as fake


def test_tables_and_processes_are_those_of_all_arenas() -> None:
    found = Figures.read(
        fake.stats(
            {
                "b": fake.arena(
                    fake.info("b"), sessions=[fake.session(7, inserts=3, writes=["b"], open_streams=2, role="writer")]
                ),
                "a": fake.arena(
                    fake.info("a"),
                    sessions=[fake.session(7, samples=5, reads=["a"], role="learner"), fake.session(8)],
                    waits=[fake.wait("a", "sample", 7, 12.0)],
                ),
            }
        )
    )
    assert [table.name for table in found.tables] == ["a", "b"]
    assert [(table.writers, table.learners) for table in found.tables] == [(0, 1), (1, 0)]
    worker, idle = found.processes
    assert (worker.pid, worker.name, worker.role, worker.arenas) == (7, "actor-7", "both", ("a", "b"))
    assert (worker.inserts, worker.samples, worker.open_streams) == (3, 5, 2)
    assert [(wait.table, wait.side, wait.since_s) for wait in worker.waits] == [("a", "sample", 12.0)]
    assert (idle.role, idle.waits) == ("idle", ())
    assert found.table("a").waits == worker.waits


def test_the_shards_of_a_table_are_one() -> None:
    ages = [
        {"edges": [1.0, 2.0, 5.0], "counts": [1, 2, 3, 4], "sum": 9.0, "of": 10},
        {"edges": [1.0, 2.0], "counts": [4, 0, 1], "sum": 2.0, "of": 5},  # of a smaller one
    ]
    found = Figures.read(
        fake.stats(
            {
                f"t~{shard}": fake.arena(
                    fake.info(f"t~{shard}", ages=ages[shard], writers_gone=True, learners_gone=shard == 0),
                    sessions=[fake.session(7, reads=[f"t~{shard}"])],
                    waits=[fake.wait(f"t~{shard}", "insert", 9, 1.0 + shard)],
                )
                for shard in (0, 1)
            }
        )
    )
    (table,) = found.tables
    assert (table.name, table.arenas, table.failure) == ("t", ("t~0", "t~1"), None)
    assert (table.info["size"], table.info["max_size"], table.info["max_diff"]) == (1000, 2000, 480.0)
    assert table.info["ages"] == {"edges": [1.0, 2.0], "counts": [5, 2, 8], "sum": 11.0, "of": 15}
    assert (table.writers, table.learners, table.writers_gone, table.learners_gone) == (0, 1, True, False)
    assert [wait.since_s for wait in table.waits] == [1.0, 2.0]
    assert table.memory_bytes == 8 << 20
    assert table.chunks_used == pytest.approx(0.4)


def test_a_table_that_nothing_can_be_said_of_has_the_reason() -> None:
    gone = fake.arena(failure="somebody truncated it", tables={"t": {}})
    for name in ("stats", "sessions", "waits", "lock_holder"):
        del gone[name]
    found = Figures.read(fake.stats({"t": gone}))
    assert (found.tables[0].info, found.tables[0].failure) == ({}, "somebody truncated it")
    assert found.tables[0].chunks_used is None
    with pytest.raises(sr.ShmReplayError, match=r"^table 't': somebody truncated it$"):
        found.table("t")


def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(sr.TableNotFound, match=r"^there is no table 'x'; there are: a, b$"):
        Figures.read(fake.stats({"a": fake.arena(fake.info("a"), fake.info("b"))})).table("x")
    with pytest.raises(sr.TableNotFound, match=r"^there is no table 'x'; there are: none$"):
        Figures.read(fake.stats({})).table("x")


def test_a_daemon_of_another_version_is_one_clear_line() -> None:
    session = fake.session(7)
    del session["role"]
    with pytest.raises(sr.ShmReplayError, match=r"^this shmreplayd \(0\.1\.0\) says nothing of 'role': it is of "):
        Figures.read(fake.stats({"a": fake.arena(sessions=[session])}))


def test_the_state_of_an_arena_is_what_is_wrong_with_it() -> None:
    assert arena_state(fake.arena()) == "healthy"
    assert arena_state(fake.arena(is_unlinked=True)) == "unlinked by somebody"
    assert arena_state(fake.arena(failure="gone")) == "gone"
    damaged = fake.arena()
    damaged["stats"]["failed"] = True
    assert arena_state(damaged) == "failed: its index is damaged"


@pytest.mark.parametrize(
    ("changes", "is_admitted"),
    [
        ({}, True),
        ({"difference": -159.0}, True),
        ({"difference": -159.5}, False),
        ({"size": 9}, False),
        ({"size": 0, "min_size_to_sample": 0}, False),
        ({"paused_samples": True}, False),
        ({"is_stopping": True}, False),
    ],
    ids=str,
)
def test_a_sample_is_admitted_as_the_core_admits_it(changes: dict[str, object], is_admitted: bool) -> None:
    found = Figures.read(fake.stats({"a": fake.arena(fake.info("a", **changes))}))
    assert found.table("a").admits_sample() == is_admitted
