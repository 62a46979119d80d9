"""`client.stats()`: what each process has done and waits for, and what items are like."""

import asyncio
import json
import os
import pathlib
import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.base import waiting
from shmreplay.clients.cli.main import main
from tests.daemon.web.fake_stats import FakeStats
from tests.support.daemons import DaemonProcess, Run, StartDaemon, table
from tests.support.waiting import eventually
from tests.support.worker import WORK, Worker


@pytest.fixture
def replay(client: sr.Client) -> sr.Client:
    """A client of a daemon with the table `replay`, which two items let be sampled, and `other` over the same steps."""
    limiter = sr.rate_limiters.SampleToInsertRatio(2, 2, 10)
    sampler = sr.selectors.Prioritized(0.6)
    client.create_tables([table(arena="both", sampler=sampler, rate_limiter=limiter), table("other", arena="both")])
    return client


def name_of(worker: Worker) -> str:
    with open(f"/proc/{worker.pid}/comm", encoding="ascii") as file:
        return file.read().strip()


def both(client: sr.Client, items: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = client.stats(items=items)["arenas"]["both"]
    return found


def session(client: sr.Client, worker: Worker) -> dict[str, Any]:
    [found] = [entry for entry in both(client)["sessions"] if entry["pid"] == worker.pid]
    return {name: value for name, value in found.items() if name not in ("session", "generation", "start_time", "pid")}


def test_each_process_is_told_of_with_what_it_has_done(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    writer, learner = (Worker(run_script(WORK, daemon.socket)) for _ in range(2))
    writer.do("for _ in range(6): table.insert(step)")
    nothing = {"inserts": 0, "samples": 0, "updates": 0, "writes": [], "reads": [], "open_streams": 0,
               "pinned_chunks": 0, "name": name_of(writer)}  # fmt: skip
    assert session(replay, writer) == {
        **nothing, "inserts": 6, "writes": ["replay"], "open_streams": 1, "role": "writer",
    }  # fmt: skip
    learner.do("batch = table.sample(4)")
    learner.do("table.update_priorities(batch.keys, batch.priorities)")
    learned = {**nothing, "samples": 4, "updates": 4, "reads": ["replay"], "role": "learner"}
    assert session(replay, learner) == learned
    learner.do("view = table.view(2)")
    viewing = session(replay, learner)
    assert viewing["pinned_chunks"] in (1, 2)
    assert both(replay)["stats"]["pinned_chunks"] == viewing["pinned_chunks"]
    assert both(replay)["stats"]["oldest_lease_s"] >= 0
    learner.do("view.release()")
    assert session(replay, learner) == {**learned, "samples": 6}
    assert both(replay)["stats"]["oldest_lease_s"] is None
    learner.do("client.table('other').insert(step)")
    assert session(replay, learner)["role"] == "both"
    tables = both(replay)["tables"]
    assert [tables["replay"][figure] for figure in ("writers", "learners")] == [1, 1]
    assert [tables["other"][figure] for figure in ("writers", "learners", "learners_gone")] == [1, 0, False]


def test_a_blocked_call_is_reported_with_its_reason_until_it_goes_on(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = Worker(run_script(WORK, daemon.socket))
    learner.begin("table.sample(1)")
    eventually(lambda: bool(both(replay)["waits"]))
    found = both(replay)
    [wait] = found["waits"]
    assert (wait["table"], wait["side"], wait["pid"]) == ("replay", "sample", learner.pid)
    eventually(lambda: bool(both(replay)["waits"][0]["since_s"] > wait["since_s"] >= 0))
    assert waiting.explain(found["tables"]["replay"], "sample", found["stats"]) == (
        "the table has 0 items, and min_size_to_sample is 2; waiting for an insert, there was none yet; "
        "1 process is attached"
    )
    told = rf"^table 'replay': process {learner.pid} \('{name_of(learner)}'\) has waited \d+ s to sample: "
    told += "the table has 0 items, and min_size_to_sample is 2"
    for flags in (["--socket", daemon.socket], ["--offline", "--instance", daemon.instance]):
        assert main(["stats", *flags]) == 0
        assert re.search(told, capsys.readouterr().out, re.MULTILINE)
    learner.end()
    eventually(lambda: both(replay)["waits"] == [])


def test_figures_that_other_tests_make_up_have_the_names_of_real_ones(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    learner = Worker(run_script(WORK, daemon.socket))
    learner.begin("table.sample(1)")
    eventually(lambda: bool(both(replay)["waits"]))
    told = replay.stats(items=True)
    made_up = asyncio.run(FakeStats(4, 8).read(items=True))  # of 4 tables one has learners that wait
    assert set(made_up["daemon"]) == set(told["daemon"])
    real, fake = told["arenas"]["both"], made_up["arenas"]["table_03"]
    assert set(fake) == set(real)
    assert set(fake["stats"]) == set(real["stats"])
    assert set(fake["tables"]["table_03"]) == set(real["tables"]["replay"])
    for several in ("sessions", "waits"):
        assert set(fake[several][0]) == set(real[several][0])
    for histogram in ("ages", "times_sampled", "priorities"):
        assert set(fake["tables"]["table_03"][histogram]) == set(real["tables"]["replay"][histogram])


def test_a_call_blocked_for_room_is_reported_too(client: sr.Client, daemon: DaemonProcess, run_script: Run) -> None:
    step = {"x": np.zeros(3, np.float32), "n": np.int64(0)}
    client.create_tables([sr.Table.queue("replay", step, 1000, chunk_steps=1, capacity_steps=8, max_streams=2)])
    writer = Worker(run_script(WORK, daemon.socket))
    writer.begin("while True: table.insert(step)")
    eventually(lambda: bool(client.stats()["arenas"]["replay"]["waits"]))
    found = client.stats()["arenas"]["replay"]
    [wait] = found["waits"]
    assert (wait["table"], wait["side"], wait["pid"], wait["wants_room"]) == ("replay", "insert", writer.pid, True)
    reason = waiting.explain(found["tables"]["replay"], "insert", found["stats"])
    assert reason.startswith("the arena has no room for more steps: of ")
    client.table("replay").sample(1)
    eventually(lambda: any(now["began_ns"] > wait["began_ns"] for now in client.stats()["arenas"]["replay"]["waits"]))
    os.kill(writer.pid, 9)
    eventually(lambda: client.stats()["arenas"]["replay"]["waits"] == [])


def test_a_table_says_when_all_its_writers_or_all_its_readers_are_gone(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    writer, learner = (Worker(run_script(WORK, daemon.socket)) for _ in range(2))

    def gone() -> list[bool]:
        info = both(replay)["tables"]["replay"]
        return [info["writers_gone"], info["learners_gone"]]

    assert gone() == [False, False]
    writer.do("for _ in range(6): table.insert(step)")
    learner.do("table.sample(2)")
    assert gone() == [False, False]
    os.kill(writer.pid, 9)
    eventually(lambda: gone() == [True, False])
    learner.do("client.close()")
    eventually(lambda: gone() == [True, True])


def test_those_who_are_gone_are_gone_after_a_restore_too(
    make_daemon: StartDaemon, tmp_path: pathlib.Path, run_script: Run
) -> None:
    saving = ("--checkpoint-dir", str(tmp_path / "saved"))
    daemon = make_daemon().start(*saving, "--checkpoint-at-stop")
    with daemon.connect() as client:
        client.create_tables([table("replay"), table("unused")])
        writer = Worker(run_script(WORK, daemon.socket))
        writer.do("for _ in range(6): table.insert(step)")
        writer.do("table.sample(2)")
        writer.do("client.close()")
    assert daemon.stop() == 0
    daemon.start(*saving, "--restore")
    with daemon.connect() as client:
        found = {name: info for arena in client.stats()["arenas"].values() for name, info in arena["tables"].items()}
        assert (found["replay"]["writers_gone"], found["replay"]["learners_gone"]) == (True, True)
        assert (found["unused"]["writers_gone"], found["unused"]["learners_gone"]) == (False, False)
        client.table("replay").insert({"x": np.ones(3, np.float32), "n": 7})
        assert not client.stats()["arenas"]["replay"]["tables"]["replay"]["writers_gone"]


def test_items_are_looked_at_when_that_is_asked_for(replay: sr.Client) -> None:
    handle = replay.table("replay")
    for priority in (0.3, 1, 1, 4):
        handle.insert({"x": np.ones(3, np.float32), "n": 7}, priority=priority)
    handle.sample(3)
    assert "ages" not in both(replay)["tables"]["replay"]
    info = both(replay, items=True)["tables"]["replay"]
    assert [info[f"{which}_priority"] for which in ("min", "max", "sum")] == [0.3, 4, pytest.approx(6.3)]
    assert info["ages"]["counts"][:4] == [1, 1, 1, 1]  # 0, 1, 2, and 3 up to the edge 5
    assert info["ages"]["sum"] == 6
    assert info["times_sampled"]["sum"] == 3
    reached = dict(zip(info["priorities"]["edges"], np.cumsum(info["priorities"]["counts"]), strict=False))
    assert (reached[0.2], reached[0.5], reached[1.0], reached[2.0], reached[5.0]) == (0, 1, 3, 3, 4)
    for histogram in ("ages", "times_sampled", "priorities"):
        assert sum(info[histogram]["counts"]) == info[histogram]["of"] == 4


def test_figures_of_a_large_table_are_scaled_up_from_a_part_of_it(client: sr.Client) -> None:
    many = 140_000
    client.create_tables([table(max_size=many)])
    steps = {"x": np.ones((1000, 3), np.float32), "n": np.zeros(1000, np.int64)}
    handle = client.table("replay")
    for _ in range(many // 1000):
        handle.insert_batch(steps)
    info = client.stats(items=True)["arenas"]["replay"]["tables"]["replay"]
    for histogram in ("ages", "times_sampled", "priorities"):
        assert sum(info[histogram]["counts"]) == many
        assert 40_000 < info[histogram]["of"] < 66_000
    assert info["ages"]["sum"] == pytest.approx(many * (many - 1) / 2, rel=0.01)
    assert info["priorities"]["sum"] == pytest.approx(many)


def test_they_are_read_from_shared_memory_as_the_daemon_tells_them(
    daemon: DaemonProcess, replay: sr.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    replay.table("replay").insert({"x": np.ones(3, np.float32), "n": 7})
    told = both(replay)
    assert main(["stats", "--offline", "--instance", daemon.instance, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["arenas"]["both"]
    assert set(found) == set(told) - {"huge_bytes"}
    for part in ("sessions", "waits", "stats"):
        assert found[part] == told[part]
    assert set(found["tables"]["replay"]) == set(told["tables"]["replay"])
