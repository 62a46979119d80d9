"""Metrics of a real daemon, as Prometheus asks for them and reads them."""

import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import re
import socket
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

import shmreplay as sr
from shmreplay.daemon.loop.http_server import MAX_CONNECTIONS
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.repository import ROOT
from tests.support.waiting import WAIT_S, eventually

STEP = {"x": np.ones(3, np.float32), "n": 7}
Samples = dict[str, dict[tuple[str, ...], float]]


def ask(connect: Callable[[], socket.socket], path: str = "/metrics", method: str = "GET", accept: str = "") -> tuple[
    http.client.HTTPResponse, str
]:  # fmt: skip
    """One request, and the text of its answer."""
    connection = http.client.HTTPConnection("localhost", timeout=WAIT_S)
    connection.sock = connect()
    connection.request(method, path, headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


class Scraped:
    """A daemon whose metrics are asked for at a Unix socket."""

    def __init__(self, daemon: DaemonProcess, path: pathlib.Path) -> None:
        self.daemon = daemon
        self.path = str(path)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(WAIT_S)
        sock.connect(self.path)
        return sock

    def samples(self) -> Samples:
        """By name the samples of it, by the values of their labels in the order of the labels' names."""
        answer, text = ask(self.connect, accept="application/openmetrics-text; version=1.0.0")
        assert answer.status == 200
        assert str(answer.getheader("Content-Type")).startswith("application/openmetrics-text; version=1.0.0")
        found: Samples = {}
        for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
            for sample in family.samples:
                values = tuple(value for _, value in sorted(sample.labels.items()))  # arena, side, table
                found.setdefault(sample.name, {})[values] = sample.value
        return found


@pytest.fixture
def scraped(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> Scraped:
    path = tmp_path / "metrics.sock"
    return Scraped(make_daemon().start("--metrics", str(path), "--checkpoint-dir", str(tmp_path / "saved")), path)


def test_they_are_those_of_the_tables_now(scraped: Scraped) -> None:
    daemon = scraped.daemon
    assert ("replay", "replay") not in scraped.samples().get("shmreplay_table_size", {})
    with daemon.connect() as client:
        limiter = sr.rate_limiters.SampleToInsertRatio(2, 2, 10)
        client.create_tables([table(rate_limiter=limiter), table("other", shards=2)])
        handle = client.table("replay")
        for _ in range(4):
            handle.insert(STEP)
        handle.sample(6)
        found = scraped.samples()
        of_table = {name: found[f"shmreplay_table_{name}"][("replay", "replay")] for name in
            ("size", "max_size", "inserts_total", "samples_total", "samples_per_insert", "samples_per_insert_target",
             "difference", "difference_min", "difference_max", "min_size_to_sample", "episodes")}  # fmt: skip
        assert of_table == {
            "size": 4, "max_size": 1000, "inserts_total": 4, "samples_total": 6, "samples_per_insert": 1.5,
            "samples_per_insert_target": 2, "difference": 2, "difference_min": -6, "difference_max": 14,
            "min_size_to_sample": 2, "episodes": 4,
        }  # fmt: skip
        sides = set(found["shmreplay_table_last_seconds"])
        assert sides == {("replay", "insert", "replay"), ("replay", "sample", "replay")}
        assert {labels[0] for labels in found["shmreplay_table_size"]} == {"replay", "other~0", "other~1"}
        assert found["shmreplay_arena_sessions"][("replay",)] == 1
        assert found["shmreplay_arena_used_chunks"][("replay",)] > 0
        assert found["shmreplay_arena_processes"] == {
            (arena, role): float(arena == "replay" and role == "both")
            for arena in ("replay", "other~0", "other~1")
            for role in ("writer", "learner", "both", "idle")
        }
        users = ("writers", "learners", "writers_gone", "learners_gone")
        assert [found[f"shmreplay_table_{name}"][("replay", "replay")] for name in users] == [1, 1, 0, 0]
        priorities = ("priority_min", "priority_max", "priority_sum")
        assert [found[f"shmreplay_table_{name}"][("replay", "replay")] for name in priorities] == [1, 1, 4]
        ages = {
            labels[1]: count for labels, count in found["shmreplay_table_age_bucket"].items() if labels[0] == "replay"
        }
        assert (ages["0.0"], ages["1.0"], ages["2.0"], ages["5.0"], ages["+Inf"]) == (1, 2, 3, 4, 4)
        assert found["shmreplay_table_age_gcount"][("replay", "replay")] == 4
        assert found["shmreplay_table_age_gsum"][("replay", "replay")] == 6
        assert "shmreplay_arena_oldest_lease_seconds" not in found
        with handle.view(1):
            found = scraped.samples()
            assert found["shmreplay_arena_pinned_chunks"][("replay",)] == 1
            assert found["shmreplay_arena_oldest_lease_seconds"][("replay",)] >= 0
        assert found["shmreplay_daemon_clients"][()] == 1
        assert found["shmreplay_daemon_info"] == {(daemon.instance, sr.__version__): 1}
        assert "shmreplay_daemon_checkpoint_age_seconds" not in found
        path = client.checkpoint()
        found = scraped.samples()
        assert found["shmreplay_daemon_checkpoint_bytes"][()] == os.path.getsize(path)
        assert found["shmreplay_daemon_checkpoint_failed"][()] == 0
        client.drop_table("replay")
        assert ("replay", "replay") not in scraped.samples()["shmreplay_table_size"]


def test_a_blocked_call_is_counted_on_its_side(scraped: Scraped) -> None:
    with scraped.daemon.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        client.create_tables([table()])
        call = pool.submit(client.table("replay").sample, 1, timeout_s=WAIT_S)
        labels = ("replay", "sample", "replay")
        eventually(lambda: scraped.samples()["shmreplay_table_blocked"][labels] == 1)
        assert scraped.samples()["shmreplay_table_blocked"][("replay", "insert", "replay")] == 0
        eventually(lambda: scraped.samples()["shmreplay_table_longest_wait_seconds"][labels] > 0)
        assert scraped.samples()["shmreplay_table_longest_wait_seconds"][("replay", "insert", "replay")] == 0
        client.table("replay").insert(STEP)
        call.result(WAIT_S)
        found = scraped.samples()
        assert found["shmreplay_table_blocked_calls_total"][labels] == 1
        assert found["shmreplay_table_blocked_seconds_total"][labels] > 0


@pytest.mark.long
def test_a_port_of_this_machine_will_do_and_an_older_prometheus_too(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start("--metrics", "127.0.0.1:0")
    (port,) = re.findall(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", daemon.log())
    answer, text = ask(lambda: socket.create_connection(("127.0.0.1", int(port)), WAIT_S))
    assert str(answer.getheader("Content-Type")).startswith("text/plain")
    assert "shmreplay_daemon_uptime_seconds" in {family.name for family in plain_families(text)}
    other = make_daemon()
    assert f"cannot listen for metrics at 127.0.0.1:{port}: Address already in use; choose another port" in other.fail(
        "--metrics", f"127.0.0.1:{port}"
    )
    assert other.left_behind() == []
    assert daemon.stop() == 0


def test_at_a_port_a_name_that_was_made_to_lead_here_is_refused(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start("--metrics", "127.0.0.1:0")
    (port,) = re.findall(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", daemon.log())
    for host, status in ((f"127.0.0.1:{port}", 200), ("localhost", 200), (f"evil.example:{port}", 403), ("", 403)):
        with socket.create_connection(("127.0.0.1", int(port)), WAIT_S) as sock:
            sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert sock.recv(65536).startswith(f"HTTP/1.1 {status} ".encode())


def test_slow_connections_lock_nobody_out(scraped: Scraped) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(scraped.connect()) for _ in range(MAX_CONNECTIONS)]
        for sock in slow:
            sock.sendall(b"GET /met")
        for _ in range(3):
            assert ask(scraped.connect)[0].status == 200
        with contextlib.suppress(ConnectionResetError):
            assert slow[0].recv(1) == b""  # the one that had waited the longest
        slow[-1].sendall(b"rics HTTP/1.1\r\n\r\n")
        assert slow[-1].recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_other_requests_are_refused_and_none_of_them_hurts(scraped: Scraped) -> None:
    assert ask(scraped.connect, "/")[0].status == 404
    assert ask(scraped.connect, method="POST")[0].status == 405
    with scraped.connect() as silent, scraped.connect() as garbage, scraped.connect() as endless:
        garbage.sendall(b"\0\xff\r\n\r\n")
        assert garbage.recv(4096).startswith(b"HTTP/1.1 404 ")
        with contextlib.suppress(BrokenPipeError):  # it may be refused while it still sends
            endless.sendall(b"x" * 2**17)
        with contextlib.suppress(ConnectionResetError):
            assert endless.recv(4096) == b""
        silent.sendall(b"GET /me")
        assert "shmreplay_daemon_uptime_seconds" in scraped.samples()
    assert scraped.daemon.stop() == 0
    assert not os.path.exists(scraped.path)
    assert "Traceback" not in scraped.daemon.log()


def test_without_the_library_there_is_one_clear_line(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    source = "import sys\nsys.modules['prometheus_client'] = None\nfrom shmreplay.daemon.main import main\n"
    daemon = make_daemon()
    ran = daemon.run("--metrics", str(tmp_path / "m.sock"), source=f"{source}sys.exit(main())")
    assert ran.wait(WAIT_S) == 1
    assert "shmreplayd: metrics.listen needs prometheus_client: pip install 'shmreplay[metrics]'\n" in daemon.log()


def test_the_page_has_every_metric(scraped: Scraped) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    with scraped.daemon.connect() as client:
        client.create_tables([table()])
        client.checkpoint()
        for name in scraped.samples():
            assert f"`{name}`" in page, name
