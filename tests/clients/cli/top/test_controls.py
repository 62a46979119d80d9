"""What each key of shmreplay top does."""

from collections.abc import Callable
from typing import Any

import pytest

from shmreplay.clients.cli.top.controls import LOCK_TIMEOUT_S, Controls
from shmreplay.clients.cli.top.rates import Rates
from shmreplay.clients.cli.top.state import State
from shmreplay.errors import ShmReplayError
from tests.support import fake_stats as fake


class FakeClient:
    """Notes what it is asked for, which must not wait for ever."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            assert options.pop("timeout_s") == LOCK_TIMEOUT_S
            self.asked.append((name, *arguments, options) if options else (name, *arguments))

        return call


class Pressed:
    """Controls over three tables, and what comes of keys."""

    def __init__(self, **changes: Any) -> None:
        queue = fake.info("queue", count_deletes=True, max_times_sampled=1, **changes)
        gone = fake.arena(failure="somebody truncated it", tables={"gone": {}})
        del gone["stats"]
        self.state = State(2.0)
        arena = fake.arena(fake.info("replay"), queue, sessions=[fake.session(7)])
        self.state.snapshot = Rates().take(fake.stats({"a": arena, "gone": gone}), 0.0)
        self.client = FakeClient()
        self.controls = Controls(self.state, self._do)
        self.refuses = False

    def _do(self, what: str, deed: Callable[..., str]) -> None:
        if self.refuses:
            raise ShmReplayError("still at work: another thing")
        self.state.say(deed(self.client))

    @property
    def is_asked(self) -> bool:
        return self.state.question is not None

    def press(self, *keys: str) -> "Pressed":
        for key in keys:
            assert self.controls.press(key)
        return self

    def on(self, table: str) -> "Pressed":
        while (row := self.state.selected()) is not None and row.key != table:
            self.state.move(1)
        return self


def test_q_is_the_end() -> None:
    pressed = Pressed()
    assert not pressed.controls.press("q")
    assert pressed.press("j").controls.press("x")


@pytest.mark.parametrize(
    ("key", "inserts", "samples", "said"),
    [
        ("i", True, False, "replay: inserts are paused; r lets them go on"),
        ("s", False, True, "replay: samples are paused; r lets them go on"),
        ("b", True, True, "replay: inserts and samples are paused; r lets them go on"),
    ],
)
def test_p_asks_which_side_is_to_pause(key: str, inserts: bool, samples: bool, said: str) -> None:
    pressed = Pressed().on("replay").press("p")
    assert pressed.state.question is not None
    assert pressed.state.question.text == "pause replay: i inserts, s samples, b both?"
    pressed.press(key)
    assert pressed.client.asked == [("pause", "replay", {"inserts": inserts, "samples": samples})]
    assert (pressed.state.message, pressed.is_asked) == (said, False)


@pytest.mark.parametrize("key", ["x", "escape", "q"])
def test_another_key_leaves_it(key: str) -> None:
    pressed = Pressed().on("replay").press("p", key)
    assert (pressed.client.asked, pressed.state.question) == ([], None)
    assert pressed.state.message == "nothing was done"


def test_r_resumes() -> None:
    pressed = Pressed().on("queue").press("r")
    assert pressed.client.asked == [("resume", "queue")]
    assert pressed.state.message == "queue: inserts and samples go on"


def test_d_drains_a_table_whose_items_go() -> None:
    pressed = Pressed().on("queue").press("d", "y")
    assert pressed.client.asked == [("pause", "queue", {"inserts": True, "samples": False})]
    refused = Pressed().on("replay").press("d")
    assert refused.state.question is None
    assert refused.state.is_refused
    assert "its items stay when they are sampled" in refused.state.message
    paused = Pressed(paused_samples=True).on("queue").press("d")
    assert "samples are paused, so nobody takes its 500 items" in paused.state.message


def test_s_changes_a_ratio() -> None:
    pressed = Pressed().on("replay").press("s")
    assert pressed.state.question is not None
    assert pressed.state.question.typed == "4"
    pressed.press("backspace", "2", ".", "5", "enter")
    ((name, table, limiter),) = pressed.client.asked
    assert (name, table, limiter.samples_per_insert, limiter.min_diff) == ("set_rate_limiter", "replay", 2.5, -175.0)
    assert pressed.state.message == "replay: 2.5 samples per insert"


def test_plus_and_minus_change_it_by_steps() -> None:
    pressed = Pressed().on("replay").press("+")
    assert pressed.state.question is not None
    assert pressed.state.question.typed == "4.4"
    pressed.press("+", "-", "-", "-")
    assert pressed.state.question.typed == "3.636"
    pressed.press("clear", "3", "enter")
    assert pressed.client.asked[0][2].samples_per_insert == 3.0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("x", "'x' is no number; nothing was done"),
        ("", "'' is no number; nothing was done"),
        ("0", "table 'replay': the ratio is 0.0; expected a finite number > 0"),
    ],
    ids=["letter", "nothing", "zero"],
)
def test_a_ratio_that_cannot_be_is_refused(typed: str, said: str) -> None:
    pressed = Pressed().on("replay").press("s", "clear", *typed, "enter")
    assert (pressed.client.asked, pressed.state.question) == ([], None)
    assert (pressed.state.message, pressed.state.is_refused) == (said, True)
    stepped = Pressed().on("replay").press("s", "clear", "x", "+")
    assert stepped.state.message == "'x' is no number; nothing was done"


def test_a_queue_has_no_other_ratio() -> None:
    pressed = Pressed().on("queue").press("+")
    assert pressed.state.question is None
    assert "it is a queue or stack" in pressed.state.message


def test_a_table_is_dropped_when_its_name_is_typed() -> None:
    pressed = Pressed().on("replay").press("D", *"replay", "enter")
    assert pressed.client.asked == [("drop_table", "replay")]
    assert pressed.state.message == "replay was dropped"
    wrong = Pressed().on("replay").press("D", *"repla", "enter")
    assert wrong.client.asked == []
    assert (wrong.state.message, wrong.state.is_refused) == ("'repla' is not 'replay': nothing was dropped", True)
    assert Pressed().on("gone").press("D", *"gone", "enter").client.asked == [("drop_table", "gone")]


@pytest.mark.parametrize("key", ["p", "r", "d", "s", "+"])
def test_nothing_else_is_done_to_a_table_that_failed(key: str) -> None:
    pressed = Pressed().on("gone").press(key)
    assert (pressed.client.asked, pressed.state.question) == ([], None)
    assert (pressed.state.message, pressed.state.is_refused) == ("table 'gone': somebody truncated it", True)


@pytest.mark.parametrize("key", ["p", "r", "d", "s", "D"])
def test_what_is_done_to_tables_is_not_done_to_clients(key: str) -> None:
    pressed = Pressed().press("tab", key)
    assert pressed.state.message == "no table is selected; tab shows them"
    assert pressed.press("back tab").state.tab == "tables"


def test_escape_shows_all_again_where_no_table_has_what_was_looked_for() -> None:
    pressed = Pressed().press("/", *"lear", "enter", "p")
    assert pressed.state.message == "no table has 'lear' in its name; esc shows all"
    assert pressed.press("escape").on("queue").press("p").is_asked


def test_one_thing_is_done_after_another() -> None:
    pressed = Pressed().on("replay")
    pressed.refuses = True
    pressed.press("r")
    assert (pressed.state.message, pressed.state.is_refused) == ("still at work: another thing", True)
    pressed.press("p", "b")
    assert pressed.state.message == "still at work: another thing"


def test_keys_look_around() -> None:
    pressed = Pressed()
    state = pressed.state
    keys = [row.key for row in state.rows()]
    assert keys == ["gone", "queue", "replay"]
    for key, expected in (
        ("down", 1), ("j", 2), ("j", 2), ("up", 1), ("k", 0), ("k", 0), ("end", 2), ("home", 0), ("page down", 2),
        ("page up", 0),
    ):  # fmt: skip
        selected = pressed.press(key).state.selected()
        assert selected is not None
        assert selected.key == keys[expected]
    pressed.press(">")
    assert (state.listing.order, state.listing.is_descending) == ("fill", True)
    pressed.press("R", "left")
    assert (state.listing.order, state.listing.is_descending) == ("name", False)
    pressed.press("?")
    assert state.shows_help
    pressed.press("j")
    assert not state.shows_help
    pressed.press(" ")
    assert state.is_frozen


def test_a_slash_leaves_those_with_a_text_in_their_name() -> None:
    pressed = Pressed().press("/", *"ue", "enter")
    assert [row.key for row in pressed.state.rows()] == ["queue"]
    selected = pressed.state.selected()
    assert selected is not None
    assert selected.key == "queue"
    pressed.press("tab", "/", *"idle", "enter")
    assert [row.figures.pid for row in pressed.state.rows()] == [7]
    pressed.press("tab", "/")
    assert pressed.state.question is not None
    assert pressed.state.question.typed == "ue"
    assert len(pressed.press("clear", "enter").state.rows()) == 3


def test_without_figures_keys_do_nothing() -> None:
    state = State(2.0)
    controls = Controls(state, lambda what, deed: pytest.fail("nothing is there"))
    for key in ("j", "k", "p", "r", "d", "s", "D", ">", "R", "tab", "?", "x", " "):
        assert controls.press(key)
