"""`shmreplay peek`, `inspect`, `histogram` and `check`: what they print of items, and that they change no counter."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.base.process_names import describe_process, process_name
from shmreplay.clients.cli.commands import check
from shmreplay.clients.cli.main import main
from tests.clients.cli.test_main import mark_failed
from tests.support.daemons import DaemonProcess, Script
from tests.support.png import read_png
from tests.support.served import at_the_server, client
from tests.support.terminal import Terminal

__all__ = ["at_the_server", "client"]

STEP = {"frame": np.zeros((2, 4, 6), np.uint8), "reward": np.float32(0), "n": np.int64(0)}
ACTOR = """
import sys
import numpy as np, shmreplay as sr
with sr.connect(sys.argv[1]) as client:
    client.table("other").insert({"x": np.float32(1)})
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[sr.Server]:
    """Thirty transitions of three episodes, forty steps that are items, one item of a table without a signature."""
    tables = [
        table("replay", STEP, item=sr.NStep(1, next=("frame",), summed=()), sampler=sr.selectors.Prioritized(0.5)),
        table("plain", {"x": np.float32(0), "y": np.zeros(20, np.int32)}),
        table("free", None),
        table("empty", STEP),
        table("split", {"x": np.float32(0)}, shards=2),
        table("other", {"x": np.float32(0)}),
    ]
    with sr.Server(tables) as server, server.client() as client:
        with client.table("replay").writer() as writer:
            for episode in range(3):
                for i in range(10):
                    frame = np.full((2, 4, 6), 10 * episode + i, np.uint8)
                    writer.append({"frame": frame, "reward": np.float32(i / 4), "n": np.int64(i)}, priority=float(i))
                writer.end_episode({"frame": np.full((2, 4, 6), 255, np.uint8)})
        for i in range(40):
            client.table("plain").insert({"x": np.float32(i), "y": np.arange(i, i + 20, dtype=np.int32)})
        client.table("free").insert({"text": "x" * 100, "numbers": [1, 2.5]})
        for i in range(12):
            client.table("split").insert({"x": np.float32(i)})
        yield server


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def table(name: str, signature: Any, **options: Any) -> sr.Table:
    return sr.Table(name, signature, 100, max_streams=8, max_sessions=16, **options)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that succeeds prints."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a command that fails prints."""
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix(f"shmreplay {arguments[0]}: ").rstrip("\n")


# --- peek ------------------------------------------------------------------------------------------------------------


def test_the_newest_items_are_listed_with_their_numbers_and_scalars(client: sr.Client, capsys: Any) -> None:
    keys = client.table("plain").keys().tolist()
    lines = said(capsys, "peek", "plain", "-n", "3").splitlines()
    assert lines[0] == "table 'plain': 3 of 40 items"
    assert lines[1].split() == ["key", "priority", "times_sampled", "age", "episode", "step", "x"]
    shown = [line.split() for line in lines[2:]]
    assert [line[0] for line in shown] == [str(key) for key in reversed(keys[-3:])]
    assert [line[3] for line in shown] == ["0", "1", "2"]
    assert [line[-1] for line in shown] == ["39", "38", "37"]
    assert max(map(len, lines)) <= 80
    assert client.table("plain").info().samples == 0


def test_scalars_that_have_no_room_are_left_out(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(capsys, "peek", "replay").splitlines()[1].split()[-2:] == ["reward", "n"]
    monkeypatch.setenv("COLUMNS", "40")
    assert said(capsys, "peek", "replay").splitlines()[1].split()[-1] == "step"


def test_the_oldest_or_any_items_are_listed_too(client: sr.Client, capsys: Any) -> None:
    keys = client.table("plain").keys().tolist()
    oldest = json.loads(said(capsys, "peek", "plain", "--oldest", "-n", "2", "--json"))
    assert [item["key"] for item in oldest] == keys[:2]
    assert oldest[1]["scalars"] == {"x": 1.0}
    found = json.loads(said(capsys, "peek", "plain", "--random", "-n", "1000", "--json"))
    assert sorted(item["key"] for item in found) == keys
    few = json.loads(said(capsys, "peek", "plain", "--random", "-n", "5", "--json"))
    assert len({item["key"] for item in few} & set(keys)) == 5


def test_items_of_shards_are_listed_together_by_age(capsys: Any) -> None:
    found = json.loads(said(capsys, "peek", "split", "-n", "100", "--json"))
    assert len(found) == 12
    assert [item["age"] for item in found] == sorted(item["age"] for item in found)


def test_empty_tables_have_no_items_to_list(capsys: Any) -> None:
    assert said(capsys, "peek", "empty") == "table 'empty': 0 of 0 items\n"
    assert json.loads(said(capsys, "peek", "empty", "--json")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("peek", "none"),
        ("inspect", "none", "1"),
        ("histogram", "none", "age"),
        ("export", "none", "--to", "x.npz"),
        ("check", "none"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_table_that_is_not_there_is_named_with_those_that_are(
    arguments: tuple[str, ...], capsys: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no table 'none'; there are: empty, free, other, plain, replay, split" in refused(
        capsys, *arguments
    )
    assert os.listdir(tmp_path) == []


def test_counts_that_are_none_are_usage_errors(capsys: Any) -> None:
    for text in ("0", "-1", "x"):
        with pytest.raises(SystemExit) as ended:
            main(["peek", "plain", "-n", text])
        assert ended.value.code == 2
        assert f"{text!r} is not a whole number of at least 1" in capsys.readouterr().err


# --- inspect ---------------------------------------------------------------------------------------------------------


def test_an_item_is_shown_with_its_writer_and_its_arrays(client: sr.Client, capsys: Any) -> None:
    key = int(client.table("replay").keys()[4])
    lines = said(capsys, "inspect", "replay", str(key)).splitlines()
    assert lines[0] == f"item {key} of table 'replay': inserted 25 inserts ago, priority 5, sampled never"
    batch = client.table("replay").get([key])
    who = describe_process(os.getpid(), process_name(os.getpid()))
    assert lines[1].startswith(f"episode {batch.episodes[0]}, steps 4 to 5, written by {who} in stream ")
    assert [line.split()[:2] for line in lines[2:]] == [
        ["frame", "uint8"],
        ["reward", "float32"],
        ["n", "int64"],
        ["next_frame", "uint8"],
    ]
    assert lines[2].endswith("(2, 4, 6)  [4 4 4 … 4 4] 4 to 4, mean 4")
    assert lines[3].split() == ["reward", "float32", "()", "1"]
    assert client.table("replay").info().samples == 0


def test_json_has_the_values(client: sr.Client, capsys: Any) -> None:
    table = client.table("replay")
    key = int(table.keys()[9])
    found = json.loads(said(capsys, "inspect", "replay", str(key), "--json"))
    batch = table.get([key])
    assert found["key"] == key
    assert found["priority"] == 9.0
    assert found["writer_pid"] == os.getpid()
    assert (found["step"], found["num_steps"]) == (9, 2)
    outputs = found["outputs"]
    assert outputs["next_frame"]["values"] == batch.data["next_frame"][0].tolist()
    assert outputs["next_frame"]["shape"] == [2, 4, 6]
    assert (outputs["frame"]["min"], outputs["frame"]["max"], outputs["frame"]["mean"]) == (9, 9, 9)
    assert outputs["reward"] == {**outputs["reward"], "dtype": "float32", "values": 2.25, "mask": True}


def test_steps_of_any_structure_are_shown_as_they_are(client: sr.Client, capsys: Any) -> None:
    key = str(client.table("free").keys()[0])
    assert "a step  {'text': 'xxxx" in said(capsys, "inspect", "free", key)
    found = json.loads(said(capsys, "inspect", "free", key, "--json"))
    assert found["outputs"][""]["values"] == {"text": "x" * 100, "numbers": [1, 2.5]}


def test_a_writer_that_has_gone_is_not_there(client: sr.Client, server: sr.Server, capsys: Any) -> None:
    actor = Script(ACTOR, server.address)
    try:
        assert actor.line() == "in"
        key = str(client.table("other").keys()[-1])
        assert json.loads(said(capsys, "inspect", "other", key, "--json"))["writer_pid"] == actor.pid
        actor.say()
        assert actor.finish()[0] == 0
    finally:
        actor.close()
    assert json.loads(said(capsys, "inspect", "other", key, "--json"))["writer_pid"] is None
    assert "written by a process that is not attached any more" in said(capsys, "inspect", "other", key)


def test_items_that_are_not_there_are_refused(capsys: Any) -> None:
    for name, key in (("plain", "5"), ("plain", "-1"), ("split", str(2**62)), ("split", "7")):
        text = refused(capsys, "inspect", name, "--", key)
        assert text == f"table {name!r} has no item {key}, or not any more; `shmreplay peek {name}` lists some"


@pytest.mark.parametrize("key", ["9" * 20, "9223372036854775808", "x"])
def test_keys_that_no_item_can_have_are_usage_errors(key: str, capsys: Any) -> None:
    for arguments in (["inspect", "plain", key], ["export", "plain", "--to", "x.npz", "--keys", key]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert f"{key!r} is not a key; expected a whole number below 2**63" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["inf", "1e300", "1e18"])
def test_long_timeouts_are_for_ever(timeout: str, capsys: Any) -> None:
    assert main(["peek", "plain", "--timeout", timeout]) == 0
    capsys.readouterr()
    for bad in ("nan", "-1", "x"):
        with pytest.raises(SystemExit, match="2"):
            main(["peek", "plain", "--timeout", bad])
        assert f"{bad!r}; expected seconds >= 0" in capsys.readouterr().err


def test_a_table_without_a_key_is_no_checkpoint(capsys: Any) -> None:
    assert "to see an item of a table, give its key, too: `shmreplay peek plain` lists some" in refused(
        capsys, "inspect", "plain"
    )
    assert "expected its key after 'plain'" in refused(capsys, "inspect", "plain", "--save", "x.png")


def test_images_are_saved_side_by_side(client: sr.Client, capsys: Any, tmp_path: pathlib.Path) -> None:
    key, path = str(client.table("replay").keys()[3]), tmp_path / "item.png"
    said(capsys, "inspect", "replay", key, "--save", str(path))
    pixels = read_png(path.read_bytes())
    assert pixels.shape == (4, 6 + 2 + 6, 1)
    assert (pixels[:, :6] == 3).all()
    assert (pixels[:, 8:] == 3).all()
    said(capsys, "inspect", "replay", key, "--save", str(path), "--column", "next_frame")
    assert (read_png(path.read_bytes())[:, :6] == 4).all()
    assert os.listdir(tmp_path) == ["item.png"]


def test_what_is_no_image_is_not_saved(client: sr.Client, capsys: Any, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "item.png")
    key = str(client.table("plain").keys()[0])
    assert "its items have no image" in refused(capsys, "inspect", "plain", key, "--save", path)
    assert "column 'x' have no image" in refused(capsys, "inspect", "plain", key, "--save", path, "--column", "x")
    text = refused(capsys, "inspect", "plain", key, "--save", path, "--column", "z")
    assert text == "--column is 'z'; the items of table 'plain' have 'x', 'y'"
    assert os.listdir(tmp_path) == []


# --- histogram -------------------------------------------------------------------------------------------------------


def test_a_histogram_is_of_all_items_and_fits_the_terminal(client: sr.Client, capsys: Any) -> None:
    lines = said(capsys, "histogram", "replay", "priority", "--bins", "9").splitlines()
    assert lines[0] == "table 'replay': priority of 30 items: 1 to 9, median 5, mean 5.4"
    assert len(lines) == 10
    assert max(map(len, lines)) == 80
    found = json.loads(said(capsys, "histogram", "replay", "priority", "--bins", "9", "--json"))
    assert sum(found["counts"]) == found["items"] == found["looked_at"] == 30
    assert len(found["edges"]) == 10


def test_ages_and_samples_have_histograms(client: sr.Client, capsys: Any) -> None:
    ages = json.loads(said(capsys, "histogram", "plain", "age", "--json"))
    assert (ages["min"], ages["max"], sum(ages["counts"])) == (0, 39, 40)
    client.table("other").sample(5)
    samples = json.loads(said(capsys, "histogram", "other", "times_sampled", "--json"))
    assert samples["max"] >= 1
    assert json.loads(said(capsys, "histogram", "split", "age", "--json"))["items"] == 12


def test_an_empty_table_has_no_histogram(capsys: Any) -> None:
    assert said(capsys, "histogram", "empty", "age") == "table 'empty' has no items\n"
    assert json.loads(said(capsys, "histogram", "empty", "age", "--json"))["counts"] == []


# --- check -----------------------------------------------------------------------------------------------------------


def test_whole_arenas_are_said_to_be(capsys: Any) -> None:
    assert said(capsys, "check", "plain").startswith("arena 'plain': whole; the check took ")
    lines = said(capsys, "check", "--all").splitlines()
    assert [line.split()[1] for line in lines] == [
        f"'{name}':" for name in ("empty", "free", "other", "plain", "replay", "split~0", "split~1")
    ]
    assert json.loads(said(capsys, "check", "split", "--json"))["split~1"]["problems"] == []


def test_contradictions_are_listed(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"problems": ["table 0: size is 3, items are 4", "chunk 7 is lost"], "error": None}
    found["seconds"] = 0.01
    monkeypatch.setattr(check, "_check", lambda *_: found)
    assert main(["check", "plain"]) == 1
    out, err = capsys.readouterr()
    assert out == "arena 'plain': 2 contradictions; the check took 10.0 ms\n"
    assert err.splitlines() == [f"shmreplay check: arena 'plain': {problem}" for problem in found["problems"]]
    assert main(["check", "plain", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"plain": found}


def test_an_arena_that_cannot_be_looked_at_costs_no_other_its_result(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = sr.Client._attach

    def busy(client: sr.Client, name: str) -> Any:
        if name == "other":
            raise sr.ShmReplayError("its lock was not free within 2 s")
        return attach(client, name)

    monkeypatch.setattr(sr.Client, "_attach", busy)
    assert main(["check", "--all", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == "shmreplay check: arena 'other': its lock was not free within 2 s\n"
    found = json.loads(out)
    assert found["other"]["error"] == "its lock was not free within 2 s"
    assert all(found[name]["error"] is None for name in found if name != "other")
    assert main(["check", "--all"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("arena 'other': not checked; ")
    assert lines[3].startswith("arena 'plain': whole; ")


def test_an_index_that_was_found_damaged_is_told(daemon: DaemonProcess, capsys: Any) -> None:
    with daemon.connect() as client:
        client.create_tables([table("replay", STEP)])
        index = next(name for name in daemon.segments() if name.endswith(".index"))
        mark_failed(daemon.store.path(index))
        assert main(["check", "--all", "--address", daemon.socket]) == 1
        out, err = capsys.readouterr()
        assert out.startswith("arena 'replay': 1 contradiction;")
        assert err.startswith("shmreplay check: arena 'replay': ")
        assert err.count("\n") == 1


# --- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_bars_are_as_wide_as_the_terminal(columns: int) -> None:
    with Terminal("histogram", "plain", "age", columns=columns, environment={"COLUMNS": ""}) as terminal:
        assert terminal.finish() == 0
        bars = [line for line in terminal.lines if " to " in line and "items" not in line]
    assert len(bars) == 20
    assert max(map(len, bars)) == columns


COMMANDS = (
    ("peek", "plain"),
    ("inspect", "plain", "1"),
    ("histogram", "plain", "age"),
    ("export", "plain", "--to", "x.npz"),
    ("check", "--all"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_daemon_that_is_not_there_is_said_in_a_line(
    arguments: tuple[str, ...], capsys: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = refused(capsys, *arguments, "--address", str(tmp_path / "none.sock"), "--timeout", "0")
    assert str(tmp_path / "none.sock") in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
@pytest.mark.one_quick
def test_a_user_who_may_not_connect_is_told_in_a_line(arguments: tuple[str, ...], server: sr.Server) -> None:
    source = (
        "import contextlib, io, os, sys\n"
        "from shmreplay.clients.cli.main import main\n"
        "with contextlib.redirect_stderr(io.StringIO()):\n"
        "    main([*sys.argv[1:], '--address', '/none.sock'])\n"  # imports all it needs while the files may be read
        "os.setuid(65534); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", source, *arguments, "--address", server.address, "--timeout", "1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/tmp")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "ermission" in ran.stderr


def test_nobody_imports_what_another_subcommand_needs() -> None:
    source = (
        "import sys, shmreplay.clients.cli.commands.catalogue as catalogue\n"
        "catalogue.build_parser(['verify']); print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd="/")
    loaded = {name.rpartition(".")[2] for name in found.stdout.split() if name.startswith("shmreplay.clients.cli.")}
    assert "verify" in loaded
    assert not loaded & {"plan", "doctor", "peek", "importer"}
