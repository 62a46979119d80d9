"""The frame of shmreplay top: what a screen of 80 by 24 shows, and of any other size."""

from typing import Any

import pytest

from shmreplay.clients.cli.figures import daemon_figures
from shmreplay.clients.cli.top import view
from shmreplay.clients.cli.top.columns import table_state
from shmreplay.clients.cli.top.once import as_lines
from shmreplay.clients.cli.top.rates import Rates
from shmreplay.clients.cli.top.state import CLIENTS, Question, State
from shmreplay.clients.cli.top.text import ASCII_MARKS, Line, Marks
from tests.support import fake_stats as fake


@pytest.fixture(autouse=True)
def one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reasons are not what is looked at here."""
    monkeypatch.setattr(daemon_figures, "explain", lambda info, side, arena: f"{info['name']} admits no {side}")


def busy() -> dict[str, Any]:
    """A table that is in order, one that waits, one that failed."""
    failed = fake.arena(failure="somebody truncated it", tables={"gone": {}})
    del failed["stats"]
    return fake.stats(
        {
            "replay": fake.arena(
                fake.info("replay"),
                sessions=[
                    fake.session(70, inserts=700, writes=["replay"], open_streams=8, role="writer"),
                    fake.session(71, samples=2800, reads=["replay"], pinned_chunks=3, role="learner"),
                ],
            ),
            "queue": fake.arena(
                fake.info(
                    "queue", size=0, max_size=50, inserts=20, samples=20, deletes=20, samples_per_insert=1.0,
                    min_size_to_sample=1, min_diff=0.0, max_diff=50.0, difference=0.0, max_times_sampled=1,
                    writers_gone=True,
                ),
                sessions=[fake.session(71, reads=["queue"], role="learner")],
                waits=[fake.wait("queue", "sample", 71, 75.0), fake.wait("queue", "sample", 72, 3.0)],
            ),
            "gone": failed,
        },
        checkpoint={"path": "/x", "bytes": 1 << 30, "saved_s_ago": 185.0, "error": None, "failed_s_ago": None},
    )  # fmt: skip


def state_of(*looks: dict[str, Any], interval_s: float = 2.0) -> State:
    state, rates = State(interval_s), Rates()
    for number, stats in enumerate(looks):
        state.snapshot = rates.take(stats, float(number))
    return state


def shown(state: State, size: tuple[int, int] = (80, 24), marks: Marks = ASCII_MARKS, **options: Any) -> list[str]:
    frame = view.frame(state, size, marks, **{"now_s": 1.0, **options})
    return ["".join(text for text, _ in line).rstrip() for line in frame]


def test_a_screen_of_80_by_24() -> None:
    later = busy()
    later["arenas"]["replay"]["tables"]["replay"].update(inserts=12_000, samples=48_000)
    state = state_of(busy(), later)
    state.move(1)  # the queue
    assert shown(state) == [
        "shmreplayd 0.1.0, instance default, pid 1234, up 2h",
        "12.0 MiB in 3 arenas | 40% of chunks in use | checkpoint 3m old, 1.0 GiB",
        "arena gone: somebody truncated it | 2 processes, 0 deaths seen",
        "[tables 3] clients 2   every 2 s   tab: the other list",
        " table^          fill  ins/s  smp/s     ratio  bounds state",
        " gone                      -      -                   failed: somebody truncate~",
        " queue        ..   0%      0      0       1/1 |o----| sample x2 75s, no writers",
        " replay       #.  50%  11.3k  45.2k       4/4 |--o--| ok",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        "-" * 80,
        "queue: 0 of 50 items, 20 inserts, 20 samples, 20 deletes",
        "sample: actor-71 71 (+1) waits 75s: queue admits no sample",
        "all writers are gone: no attached process can end the wait of a sample",
        "limiter: 1 samples per insert from 1 items on, difference 0 in 0..50",
        "last insert 0s ago, last sample never | waited in all: inserts 0s, samples 0s",
        "0 writers, 1 learner | 200 evicted",
        "memory: 4.0 MiB of arena queue, 40% of the chunks in use",
        "p pause  r resume  d drain  s ratio  D drop  < > sort  / find  ? help  q quit",
    ]


def test_the_clients_on_a_screen_of_80_by_24() -> None:
    state = state_of(busy(), busy())
    state.tab = CLIENTS
    state.move(1)
    assert shown(state)[3:8] == [
        " tables 3 [clients 2]  every 2 s   tab: the other list",
        "     pid^ name            role     ins/s  smp/s  upd/s waits",
        "       70 actor-70        writer       0      0      0 -",
        "       71 actor-71        learner      0      0      0 sample 75s queue",
        "",
    ]
    assert shown(state)[-5:] == [
        "actor-71 71: 0 inserts, 2,800 samples, 0 updates since it attached to queue,",
        "    replay",
        "sample from queue waits 75s: queue admits no sample",
        "samples from queue, replay",
        "< > sort  R turn round  / find  ? help  q quit",
    ]


@pytest.mark.parametrize("columns", [1, 2, 20, 79, 80, 81, 99, 100, 131, 250])
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 24, 60])
def test_a_frame_is_as_large_as_the_screen(columns: int, rows: int) -> None:
    state = state_of(busy(), busy())
    for tab in ("tables", "clients"):
        for shows_help in (False, True):
            state.tab, state.shows_help = tab, shows_help
            frame = view.frame(state, (columns, rows), Marks(), now_s=1.0)
            assert len(frame) == rows
            assert {sum(len(text) for text, _ in line) for line in frame} == {columns}


def test_a_wide_screen_shows_more_columns_and_whole_names() -> None:
    stats = fake.stats({"a": fake.arena(fake.info("trajectories-of-a-long-name"))})
    titles, row = shown(state_of(stats), (160, 24))[4:6]
    for title in ("items", "age", "memory", "wr", "ln"):
        assert title in titles
        assert title not in shown(state_of(stats))[4]
    assert "trajectories-of-a-long-name" in row
    assert "trajectorie~" in shown(state_of(stats))[5]


def test_a_wide_screen_shows_how_the_rates_went_lately() -> None:
    looks = []
    for inserts in (0, 100, 300, 700, 700):
        looks.append(fake.stats({"a": fake.arena(fake.info("a", inserts=inserts, samples=0))}))
    state = state_of(*looks)
    titles, row = shown(state, (200, 24))[4:6]
    assert "ins/s trend" in titles
    at = titles.index("ins/s trend") + len("ins/s trend")
    assert row[at - 5 : at] == " -=#_"  # none at the first reading; 100, 200, 400, 0 a second
    assert "trend" not in shown(state, (159, 24))[4]
    snapshot = state.snapshot
    assert snapshot is not None
    assert "trend" not in "\n".join(as_lines(snapshot, 200, ASCII_MARKS))  # one reading is no trend


def test_more_wrong_than_fits_a_line_takes_some_more() -> None:
    names = [f"arena-number-{number}" for number in range(9)]
    state = state_of(fake.stats({name: fake.arena(fake.info(name), is_unlinked=True) for name in names}))
    lines = shown(state)
    assert lines[2].startswith("arena arena-number-0: unlinked by somebody; arena arena-number-1")
    assert lines[4].endswith("~")
    assert lines[5].startswith("[tables 9]")
    assert len(lines) == 24


def test_a_printed_list_cuts_nothing() -> None:
    reason = "its index is damaged, and this is a long text about what to do now"
    failed = fake.arena(failure=reason, tables={"gone": {}})
    del failed["stats"]
    state = state_of(fake.stats({"a-table-with-a-very-long-name-of-more-than-32-letters": failed}))
    assert state.snapshot is not None
    printed = "\n".join(as_lines(state.snapshot, 80, ASCII_MARKS))
    assert f"failed: {reason}" in printed
    assert f": {reason} | 2 processes, 0 deaths seen | waited for locks 0s in all" in printed


def many(num_tables: int) -> dict[str, Any]:
    return fake.stats({"a": fake.arena(*(fake.info(f"t{number:02}", size=number) for number in range(num_tables)))})


def rows_of(state: State) -> list[str]:
    return [line.split()[0].strip(">") for line in shown(state) if line[:1] in (" ", ">") and line[1:2] == "t"][1:]


def test_more_rows_than_the_screen_has_are_scrolled_with_the_selected_one() -> None:
    state = state_of(many(40))
    first = rows_of(state)
    assert first[0] == "t00"
    assert any("more" in line for line in shown(state))
    state.move(39)
    last = rows_of(state)
    assert last[-1] == "t39"
    assert len(last) == len(first)
    state.move(-1)
    assert rows_of(state) == last
    state.move(-39)
    assert rows_of(state) == first


def test_rows_are_sorted_by_a_column_with_the_largest_first() -> None:
    state = state_of(many(5))
    state.order_by(1, state.columns)
    assert state.listing.order == "fill"
    assert [row.key for row in state.rows()] == ["t04", "t03", "t02", "t01", "t00"]
    assert "fillv" in shown(state)[4]
    state.order_by(-1, state.columns)
    assert [row.key for row in state.rows()] == ["t00", "t01", "t02", "t03", "t04"]
    for _ in state.columns:  # every column of both lists sorts, of failed tables too
        state.order_by(1, state.columns)
    other = state_of(busy(), busy())
    for tab in ("tables", "clients"):
        other.tab = tab
        for _ in other.columns:
            other.order_by(1, other.columns)
            assert len(other.rows()) == (3 if tab == "tables" else 2)


def test_the_worst_state_comes_first() -> None:
    state = state_of(busy())
    state.order_by(-1, state.columns)
    assert state.listing.order == "state"
    assert [row.key for row in state.rows()] == ["queue", "gone", "replay"]


def test_the_selected_row_stays_selected_while_others_change_places() -> None:
    rates = Rates()
    state = State(2.0, snapshot=rates.take(many(5), 0.0))
    state.move(2)
    less = many(5)
    del less["arenas"]["a"]["tables"]["t00"]
    state.snapshot = rates.take(less, 1.0)
    selected = state.selected()
    assert selected is not None
    assert selected.key == "t02"
    del less["arenas"]["a"]["tables"]["t02"]
    state.snapshot = rates.take(less, 2.0)
    selected = state.selected()
    assert selected is not None
    assert selected.key == "t03"  # the one that is there now


@pytest.mark.parametrize(
    ("changes", "waits", "text", "style"),
    [
        ({}, [], "ok", "good"),
        ({"paused_inserts": True, "paused_samples": True}, [], "paused", "warn"),
        ({"paused_inserts": True}, [("insert", 2.0)], "inserts paused, insert 2s", "warn"),
        ({}, [("sample", 9.0), ("sample", 1.0)], "sample x2 9s", ""),
        ({}, [("sample", 10.0)], "sample 10s", "bad"),
        ({}, [("sample", 0.9), ("insert", 0.9)], "ok", "good"),
        ({"learners_gone": True}, [], "no learners", ""),
        ({"learners_gone": True}, [("insert", 0.1)], "no learners", "bad"),
        ({"learners_gone": True, "writers_gone": True}, [], "no writers or learners", ""),
        ({"is_stopping": True}, [], "stopping", "warn"),
        ({"max_times_sampled": 1, "paused_inserts": True}, [("insert", 2.0)], "draining, insert 2s", "warn"),
        ({"max_times_sampled": 1, "paused_inserts": True, "size": 0}, [], "drained", "warn"),
    ],
    ids=str,
)
def test_the_state_of_a_table(changes: dict[str, Any], waits: list[tuple[str, float]], text: str, style: str) -> None:
    sleeping = [fake.wait("t", side, 7, since_s) for side, since_s in waits]
    state = state_of(fake.stats({"t": fake.arena(fake.info("t", **changes), waits=sleeping)}))
    assert state.snapshot is not None
    assert view_state(state) == (text, style)


def view_state(state: State) -> tuple[str, str]:
    assert state.snapshot is not None
    return table_state(state.snapshot.tables[0])


def test_an_unlinked_arena_is_told_of_and_its_table_works_on() -> None:
    state = state_of(fake.stats({"t": fake.arena(fake.info("t"), is_unlinked=True)}))
    assert view_state(state) == ("unlinked by somebody", "bad")
    assert "arena t: unlinked by somebody" in shown(state)[2]


def test_what_is_asked_and_said_is_in_the_last_line() -> None:
    state = state_of(busy())
    state.say("it was done")
    assert shown(state)[-1] == "it was done"
    state.question = Question("drop " + "x" * 90 + ": type its name:", print, typed="xx")
    assert shown(state)[-1] == "x" * 60 + ": type its name: xx_"
    state.question = Question("y/n?", print, ("y",))
    assert shown(state)[-1] == "y/n?"


def test_a_daemon_that_has_gone_is_told_of() -> None:
    state = state_of(busy())
    state.problem = "no shmreplayd answered"
    assert shown(state, now_s=130.0)[2] == "no daemon for 2m, trying again: no shmreplayd answered"
    state.problem = None
    assert shown(state, now_s=20.0)[2] == "the daemon has not answered for 20s; these figures are that old"
    state.is_frozen = True
    assert "processes" in shown(state, now_s=20.0)[2]
    assert "frozen; space unfreezes" in shown(state)[3]
    nothing = State(2.0, problem="no shmreplayd answered")
    assert shown(nothing)[:2] == ["no figures yet", "no shmreplayd answered"]


def test_a_checkpoint_that_was_not_saved_is_told_of() -> None:
    failed = {"path": None, "bytes": None, "saved_s_ago": None, "error": "disk full", "failed_s_ago": 3.0}
    state = state_of(fake.stats({}, checkpoint=failed))
    assert shown(state)[1].endswith("| no checkpoint")
    assert shown(state)[2].startswith("no checkpoint was saved: disk full | 2 processes")
    assert shown(state)[5] == " no tables"


def styles(frame: list[Line]) -> set[str]:
    return {style for line in frame for text, style in line if text.strip()}


def test_the_selected_row_is_marked_where_there_are_no_colours() -> None:
    state = state_of(busy())
    state.move(1)
    (marked,) = (line for line in shown(state, marks_row=True) if line.startswith(">"))
    assert marked.startswith(">queue")
    assert "selected" in styles(view.frame(state, (80, 24), ASCII_MARKS, now_s=0.0))


def test_help_fits_into_80_by_24() -> None:
    state = state_of(busy())
    state.shows_help = True
    lines = shown(state)
    for keys, text in (*view.HELP, *view.COLUMNS_HELP):
        assert any(line.strip() == f"{keys:<16}{text}".strip() for line in lines)
    assert lines[-1] == "any key: back"
