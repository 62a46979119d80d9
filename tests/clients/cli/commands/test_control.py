"""shmreplay clients, pause, resume, drain, set-ratio, reset, drop: against a real daemon."""

import json
import pathlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.cli.main import main
from tests.support.daemons import DaemonProcess, new_daemon, table
from tests.support.terminal import Terminal
from tests.support.waiting import eventually

STEP = {"x": np.zeros(3, np.float32), "n": np.int64(1)}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for all tests here; each test has its own tables."""
    daemon = new_daemon(tmp_path_factory.mktemp("control") / "daemon.sock")
    yield daemon.start()
    daemon.clean_up()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[sr.Client]:
    with daemon.connect() as client:
        yield client
        if tables := list(client.tables()):
            client.drop_tables(tables)


class Shell:
    """Runs subcommands at the daemon, in this process."""

    def __init__(self, daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._address = daemon.socket
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        code = main([*arguments, "--address", self._address])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def shell(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(daemon, capsys)


def fill(client: sr.Client, name: str, num_items: int) -> sr.TableHandle:
    handle = client.table(name)
    for _ in range(num_items):
        handle.insert(STEP)
    return handle


def test_sides_are_paused_and_let_go_on(client: sr.Client, shell: Shell) -> None:
    client.create_tables([table("replay")])
    handle = fill(client, "replay", 1)
    assert shell("pause", "replay", "--samples") == (0, "replay: samples are paused\n", "")
    assert not handle.can_sample()
    assert handle.can_insert()
    assert shell("pause", "replay", "--inserts") == (0, "replay: inserts and samples are paused\n", "")
    assert not handle.can_insert()
    assert shell("resume", "replay") == (0, "replay: inserts and samples go on\n", "")
    assert handle.can_sample()
    code, out, err = shell("pause", "replay", "--json")
    assert (code, json.loads(out), err) == (
        0,
        {"table": "replay", "paused_inserts": True, "paused_samples": True},
        "",
    )


def test_a_ratio_is_changed_while_the_table_is_in_use(client: sr.Client, shell: Shell) -> None:
    limiter = sr.rate_limiters.SampleToInsertRatio(4, 10, 200)
    client.create_tables([table("replay", rate_limiter=limiter), table("free", max_size=100)])
    assert shell("set-ratio", "replay", "8") == (
        0,
        "replay: 8 samples per insert from 10 items on, difference within -120 and 280\n",
        "",
    )
    info = client.table("replay").info()
    assert (info.samples_per_insert, info.min_diff, info.max_diff, info.difference) == (8.0, -120.0, 280.0, 80.0)
    code, out, err = shell("set-ratio", "free", "2", "--min-size-to-sample", "200", "--error-buffer", "50", "--json")
    assert (code, json.loads(out)) == (
        0,
        {"table": "free", "samples_per_insert": 2.0, "min_size_to_sample": 200, "min_diff": 350.0, "max_diff": 450.0},
    )
    assert err == (
        "shmreplay set-ratio: warning: table 'free': min_size_to_sample is 200, more than max_size 100: "
        "sampling never starts\n"
    )


def test_a_ratio_is_changed_in_all_shards_of_a_table(client: sr.Client, shell: Shell) -> None:
    limiter = sr.rate_limiters.SampleToInsertRatio(4, 10, 200)
    client.create_tables([table("replay", shards=2, rate_limiter=limiter)])
    assert shell("set-ratio", "replay", "8")[0] == 0
    infos = client.table("replay").shard_infos()
    assert [info.samples_per_insert for info in infos] == [8.0, 8.0]
    assert (sum(info.min_diff for info in infos), sum(info.max_diff for info in infos)) == (-120.0, 280.0)
    assert shell("pause", "replay", "--samples")[1] == "replay: samples are paused\n"


def test_the_difference_may_be_kept(client: sr.Client, shell: Shell) -> None:
    client.create_tables([table("replay", rate_limiter=sr.rate_limiters.SampleToInsertRatio(4, 10, 200))])
    handle = fill(client, "replay", 20)
    assert shell("set-ratio", "replay", "2", "--keep-difference")[0] == 0
    assert handle.info().difference == 40.0


def test_a_queue_drains_while_somebody_samples(client: sr.Client, shell: Shell) -> None:
    client.create_tables([sr.Table.queue("queue", STEP, 100, max_streams=8)])
    handle = fill(client, "queue", 5)
    learner = threading.Thread(target=lambda: [handle.sample(1) for _ in range(5)])

    def begin() -> None:
        eventually(lambda: bool(client.tables()["queue"]["paused_inserts"]))
        learner.start()

    starter = threading.Thread(target=begin)
    starter.start()
    code, out, _ = shell("drain", "queue")
    starter.join()
    learner.join()
    assert (code, out) == (0, "queue: empty, after 5 samples; inserts stay paused until `shmreplay resume queue`\n")
    assert not handle.can_insert()
    code, out, err = shell("drain", "queue", "--json")
    assert (code, json.loads(out), err) == (0, {"table": "queue", "left": 0, "samples": 0}, "")


def test_a_drain_ends_where_no_further_sample_is_admitted(client: sr.Client, shell: Shell) -> None:
    client.create_tables([table("once", max_times_sampled=1, rate_limiter=sr.rate_limiters.MinSize(3))])
    fill(client, "once", 2)
    code, out, err = shell("drain", "once")
    assert (code, err) == (0, "")
    assert out.startswith(
        "once: 2 items are left, and the rate limiter admits no sample of them, after 0 samples; inserts"
    )


def test_a_drain_that_is_not_done_in_time_says_what_is_left(client: sr.Client, shell: Shell) -> None:
    client.create_tables([sr.Table.queue("queue", STEP, 100, max_streams=8)])
    fill(client, "queue", 2)
    code, out, err = shell("drain", "queue", "--wait", "0")
    assert (code, out) == (1, "")
    assert err == (
        "queue: 2 items are left\n"
        "shmreplay drain: table 'queue': not empty within 0 s: 2 items are left, after 0 samples (last one never); "
        "inserts stay paused until `shmreplay resume queue`\n"
    )


def test_a_drain_ends_when_somebody_lets_inserts_go_on(client: sr.Client, shell: Shell) -> None:
    client.create_tables([sr.Table.queue("queue", STEP, 100, max_streams=8)])
    fill(client, "queue", 2)

    def resume() -> None:
        eventually(lambda: bool(client.tables()["queue"]["paused_inserts"]))
        client.resume("queue")

    other = threading.Thread(target=resume)
    other.start()
    code, out, err = shell("drain", "queue")
    other.join()
    assert (code, out) == (1, "")
    assert err.endswith("drain: table 'queue': somebody resumed its inserts; 2 items are left, after 0 samples\n")


def test_a_table_that_never_drains_is_refused(client: sr.Client, shell: Shell) -> None:
    client.create_tables([table("replay"), sr.Table.queue("queue", STEP, 100, max_streams=8)])
    client.pause("queue", inserts=False)
    code, out, err = shell("drain", "replay")
    assert (code, out) == (1, "")
    assert err.startswith(
        "shmreplay drain: table 'replay': its items stay when they are sampled (max_times_sampled is 0)"
    )
    assert "`shmreplay pause replay --inserts` keeps new ones out\n" in err
    assert shell("drain", "queue") == (
        1,
        "",
        "shmreplay drain: table 'queue': samples are paused, so nobody takes its 0 items; "
        "`shmreplay resume queue` lets them go on\n",
    )
    assert client.table("queue").can_insert()  # what is refused changes nothing
    assert client.table("replay").can_insert()


def test_tables_are_emptied_and_dropped_where_it_is_said_beforehand(client: sr.Client, shell: Shell) -> None:
    client.create_tables([table("a"), table("b", arena="shared"), table("c", arena="shared")])
    fill(client, "a", 3)
    assert shell("reset", "a", "--yes") == (0, "a: 3 items were deleted\n", "")
    assert len(client.table("a")) == 0
    code, out, err = shell("reset", "a", "--yes", "--json")
    assert (code, json.loads(out), err) == (0, {"table": "a", "items": 0}, "")
    code, out, err = shell("drop", "b", "--yes")
    assert (code, out) == (1, "")
    assert "'c'" in err
    assert len(err.splitlines()) == 1
    assert shell("drop", "b", "c", "--yes") == (0, "dropped: b, c\n", "")
    code, out, err = shell("drop", "a", "--yes", "--json")
    assert (code, json.loads(out), err) == (0, {"dropped": ["a"]}, "")
    assert client.tables() == {}


@pytest.mark.parametrize("arguments", [("reset", "a"), ("drop", "a")], ids=lambda arguments: arguments[0])
def test_where_nobody_can_be_asked_nothing_is_lost(
    client: sr.Client, shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    client.create_tables([table("a")])
    fill(client, "a", 2)
    with open("/dev/null", encoding="ascii") as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        code, out, err = shell(*arguments)
    assert (code, out) == (1, "")
    assert err.endswith("? Nobody can be asked, since stdin is not a terminal: give --yes\n")
    assert len(client.table("a")) == 2


def test_at_a_terminal_it_is_asked(daemon: DaemonProcess, client: sr.Client) -> None:
    client.create_tables([table("a")])
    fill(client, "a", 2)
    with Terminal("drop", "a", "--address", daemon.socket) as terminal:
        terminal.until("Drop a (2 items)? [y/N]")
        terminal.press("\n")
        assert terminal.finish() == 1
        assert "shmreplay drop: nothing was done" in terminal.text
    assert len(client.table("a")) == 2
    with Terminal("reset", "a", "--address", daemon.socket) as terminal:
        terminal.until("Delete 2 items, all of table 'a'? [y/N]")
        terminal.press("y\n")
        assert terminal.finish() == 0
        assert "a: 2 items were deleted" in terminal.text
    assert len(client.table("a")) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("peek", "x"),
        ("inspect", "x", "1"),
        ("pause", "x"),
        ("resume", "x"),
        ("drain", "x"),
        ("set-ratio", "x", "4"),
        ("reset", "x"),
        ("drop", "x"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_table_that_is_not_there_is_one_clear_line(
    client: sr.Client, shell: Shell, arguments: tuple[str, ...]
) -> None:
    client.create_tables([table("replay")])
    assert shell(*arguments) == (
        1,
        "",
        f"shmreplay {arguments[0]}: there is no table 'x'; there are: replay\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [("clients",), ("pause", "x"), ("drain", "x"), ("set-ratio", "x", "4"), ("drop", "x")],
    ids=lambda arguments: arguments[0],
)
def test_without_a_daemon_there_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "none.sock"
    assert main([*arguments, "--address", str(path), "--timeout", "0"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"shmreplay {arguments[0]}: no shmreplayd answered ({path}: No such file")
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("drain", "x", "--wait=-1"), "argument --wait: '-1'; expected seconds >= 0"),
        (("import", "x", "y.npz", "--wait", "nan"), "argument --wait: 'nan'; expected seconds >= 0"),
        (("tables", "--timeout", "soon"), "argument --timeout: 'soon'; expected seconds >= 0"),
        (("top", "--interval", "0"), "argument --interval: '0'; expected 0.1 to 86400 seconds"),
        (("top", "--interval", "inf", "--once"), "argument --interval: 'inf'; expected 0.1 to 86400 seconds"),
        (("histogram", "x", "age", "--bins", "201"), "argument --bins: '201' is more than 200 bars"),
        (("check",), "one of the arguments TABLE --all is required"),
        (("check", "x", "--all"), "argument --all: not allowed with argument TABLE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_arguments_that_cannot_be_are_refused_with_2(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert capsys.readouterr().err.endswith(f"shmreplay {arguments[0]}: error: {text}\n")
