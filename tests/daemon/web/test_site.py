"""What is answered over HTTP: the page, the figures, and changes, which need the token and a request of this page."""

import asyncio
import gzip
import http.client
import json
import os
import pathlib
import re
import socket
from typing import Any, cast

import numpy as np
import pytest

from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.web.actions import act
from shmreplay.daemon.web.page import FOLDER
from shmreplay.daemon.web.stats_cache import FRESH_S
from tests.daemon.web.fake_stats import FakeStats
from tests.daemon.web.served import Served
from tests.support.daemons import DaemonProcess, StartDaemon, make_daemon, table
from tests.support.waiting import WAIT_S, eventually

__all__ = ["make_daemon"]

Answer = tuple[http.client.HTTPResponse, str]
JSON = {"Content-Type": "application/json"}


class Asker:
    """A client at an address, with the token if it is given."""

    def __init__(self, address: str, token: str = "", token_path: str = "") -> None:
        self.address = address
        self.token = token
        self.token_path = token_path

    def __call__(self, path: str, body: object = None, method: str = "", **headers: str) -> Answer:
        """GET, or POST of a body as JSON. `headers` are named as `Sec_Fetch_Site`; "" leaves one of the usual out."""
        connection = http.client.HTTPConnection("localhost", timeout=WAIT_S)
        connection.sock = self.connect()
        sent = {"Host": self.address.removeprefix("http://") if self.address.startswith("http") else "localhost"}
        if body is not None:
            sent |= JSON | {"Authorization": f"Bearer {self.token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            method or ("GET" if body is None else "POST"),
            path,
            None if body is None else json.dumps(body),
            {name: value for name, value in sent.items() if value},
        )
        answer = connection.getresponse()
        packed = answer.read()
        connection.close()
        text = gzip.decompress(packed) if answer.getheader("Content-Encoding") == "gzip" else packed
        return answer, text.decode()

    def connect(self) -> socket.socket:
        if self.address.startswith("/"):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(WAIT_S)
            sock.connect(self.address)
            return sock
        host, _, port = self.address.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), WAIT_S)

    def change(self, action: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """The status and the answer's fields."""
        answer, text = self(f"/api/{action}", fields)
        found: dict[str, Any] = json.loads(text)
        return answer.status, found


@pytest.fixture
def ask(served: Served) -> Asker:
    return Asker(served.address, served.token)


def asker_of(daemon: DaemonProcess) -> Asker:
    """Where the daemon's log says that its page is, with the token that it says."""
    address, token_path = re.findall(r"web page: (\S+); .* the token in (\S+)", daemon.log())[-1]
    return Asker(address, pathlib.Path(token_path).read_text(encoding="ascii").strip(), token_path)


# --- looking -----------------------------------------------------------------------------------------------------


def test_the_page_brings_all_it_needs_and_may_load_nothing_else(ask: Asker) -> None:
    answer, text = ask("/")
    assert answer.status == 200
    assert str(answer.getheader("Content-Type")).startswith("text/html")
    assert answer.getheader("Cache-Control") == "no-store"
    policy = str(answer.getheader("Content-Security-Policy"))
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert re.findall(r"<(?:script|style)>|@import|url\(|\bstyle=|\bon\w+=\"", text) == []
    assert re.findall(r"<link(?![^>]*href=\"data:)[^>]*href=\"([^\"]*)|<script[^>]*src=\"([^\"]*)", text) == [
        ("style.css", ""),
        ("", "main.js"),
    ]
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_each_file_that_the_page_loads_is_served_and_names_only_served_files(ask: Asker) -> None:
    seen, missing = set(), ["/style.css", "/main.js"]
    while missing:
        path = missing.pop()
        seen.add(path)
        answer, text = ask(path)
        assert answer.status == 200, path
        kind = "text/css" if path.endswith(".css") else "text/javascript"
        assert str(answer.getheader("Content-Type")).startswith(kind)
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert re.findall(r"@import|url\(|https?://|innerHTML|insertAdjacentHTML|document\.write|\beval\(", text) == []
        missing += {f"/{name}" for name in re.findall(r"from \"\./([\w.]+)\"", text)} - seen - set(missing)
    assert seen == {f"/{file.name}" for file in FOLDER.iterdir() if file.name != "index.html"}


def test_the_page_says_where_the_token_is_and_not_the_token(ask: Asker) -> None:
    answer, text = ask("/api/token")
    assert answer.status == 200
    path = json.loads(text)["path"]
    assert pathlib.Path(path).read_text(encoding="ascii").strip() == ask.token
    assert ask.token not in text


def test_figures_are_those_of_the_daemon_and_say_why_somebody_waits(ask: Asker) -> None:
    answer, text = ask("/api/stats")
    assert answer.status == 200
    found = json.loads(text)
    assert len(found["arenas"]) == 50
    waiting = found["arenas"]["table_03"]
    assert waiting["waits"][0]["side"] == "sample"
    assert set(waiting["tables"]["table_03"]["why"]) == {"sample"}
    assert "8 samples per insert" in waiting["tables"]["table_03"]["why"]["sample"]
    assert "ages" not in waiting["tables"]["table_03"]
    packed, same = ask("/api/stats", Accept_Encoding="gzip")
    assert packed.getheader("Content-Encoding") == "gzip"
    assert json.loads(same)["daemon"]["instance"] == "default"


def test_items_are_looked_at_only_where_somebody_asks_for_them(ask: Asker) -> None:
    found = json.loads(ask("/api/stats?items=1")[1])
    ages = found["arenas"]["table_00"]["tables"]["table_00"]["ages"]
    assert len(ages["counts"]) == len(ages["edges"]) + 1


def test_however_many_look_the_figures_are_read_once_a_second(ask: Asker, fake: FakeStats) -> None:
    first = json.loads(ask("/api/stats")[1])
    others = [json.loads(ask("/api/stats")[1]) for _ in range(5)]
    moments = {found["at_s"] for found in (first, *others)}
    span_s = max(moments) - min(moments)
    assert len(moments) <= 1 + span_s / FRESH_S


def test_what_is_no_number_and_a_bound_that_is_none_become_null(tmp_path: pathlib.Path) -> None:
    served = Served(FakeStats(1, 1, {"seconds": float("nan"), "bytes": float("inf")}), tmp_path / "token")
    try:
        text = Asker(served.address)("/api/stats")[1]
    finally:
        served.close()
    found = json.loads(text)
    assert found["daemon"]["checkpoint"] == {"seconds": None, "bytes": None}
    [info] = [info for arena in found["arenas"].values() for info in arena["tables"].values()]
    assert (info["min_diff"], info["max_diff"]) == (None, None)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "localhost:8080", "[::1]:9470", "LOCALHOST:1"])
def test_this_machine_is_asked_by_any_of_its_own_names_and_ports(ask: Asker, host: str) -> None:
    assert ask("/api/stats", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:80",
        "localhost.:80",
        "[::1",
        "[::1]evil",
        "10.0.0.1",
        "evil@localhost",
        "localhost:",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(ask: Asker, host: str) -> None:
    answer, text = ask("/api/stats", Host=host)
    assert answer.status == 403
    assert text.endswith("; expected one of 127.0.0.1, localhost, [::1]\n")
    assert ask("/", Host=host)[0].status == 403


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/nothing", "GET", 404), ("/api/shutdown", "POST", 404), ("/", "POST", 405), ("/api/stats", "PUT", 405),
     ("/api/pause", "GET", 405), ("/index.html", "GET", 404), ("/main.js", "POST", 405),
     ("/../daemon/main.py", "GET", 404)],
)  # fmt: skip
def test_there_is_nothing_else(ask: Asker, path: str, method: str, status: int) -> None:
    assert ask(path, method=method)[0].status == status


@pytest.mark.parametrize(
    ("head", "status", "text"),
    [
        (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537",
            413,
            "the body is too long; expected at most 65536 bytes",
        ),
        (
            f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'9' * 5000}",
            413,
            "the body is too long; expected at most 65536 bytes",
        ),
        (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1",
            400,
            "Content-Length is '-1'; expected a number of bytes",
        ),
        (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: \xb2",
            400,
            "Content-Length is '\xb2'; expected a number of bytes",
        ),
        (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked",
            411,
            "a body needs a Content-Length",
        ),
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost",
            400,
            "Host is there more than once; expected at most one",
        ),
        (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nauthorization: a\r\nAuthorization: b",
            400,
            "Authorization is there more than once; expected at most one",
        ),
        ("GET / HTTP/1.1\r\nAccept: a", 403, "the host is ''; expected one of "),
        ("\0\xff", 403, "the host is ''; expected one of "),
    ],
    ids=["too_long", "many_digits", "negative", "no_digit", "chunked", "two_hosts", "two_tokens", "no_host", "garbage"],
)
def test_what_is_no_plain_request_is_refused_in_a_line(ask: Asker, head: str, status: int, text: str) -> None:
    with ask.connect() as sock:
        sock.sendall(f"{head}\r\n\r\n".encode("latin-1"))
        with sock.makefile("rb") as file:
            answer = file.read().decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert "Content-Type: text/plain" in answer
    assert answer.partition("\r\n\r\n")[2].startswith(text)


# --- changing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Host": "evil.example"}, 403),
    ],
    ids=lambda value: "-".join(f"{k}-{v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_a_change_needs_the_token_and_comes_from_the_page(
    ask: Asker, served: Served, headers: dict[str, str], status: int
) -> None:
    before = list(served.commands.asked)
    assert ask("/api/drop", {"tables": ["table_00"]}, **headers)[0].status == status
    assert served.commands.asked == before


def test_the_token_alone_can_be_tried(ask: Asker, served: Served) -> None:
    before = list(served.commands.asked)
    assert ask("/api/token", {}, Origin=served.address, Sec_Fetch_Site="same-origin")[0].status == 200
    answer, text = Asker(served.address, "other")("/api/token", {})
    assert answer.status == 401
    assert text.startswith("the token is missing, or of an earlier start of the daemon; it is in ")
    assert served.commands.asked == before


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("pause", {"table": "a"}, "expected table, inserts, samples; got table"),
        ("resume", {"table": "a", "more": 1}, "expected table; got more, table"),
        ("checkpoint", {"path": "/"}, "expected nothing; got path"),
        ("resume", [], "the body is []; expected a JSON object"),
        (
            "set_ratio",
            {"table": "a", "samples_per_insert": -1, "min_size_to_sample": 1, "error_buffer": 4},
            "table 'a': the ratio is -1.0; expected a finite number > 0",
        ),
        ("set_ratio", {"table": "a", "samples_per_insert": 2, "error_buffer": "b"}, "error_buffer is 'b'; expected a "),
        (
            "set_ratio",
            {"table": "a", "error_buffer": 4},
            "expected table, samples_per_insert, and optionally min_size_to_sample, error_buffer; got "
            "error_buffer, table",
        ),
    ],
    ids=["too_few", "too_many", "none", "no_object", "ratio", "buffer", "no_ratio"],
)
def test_what_cannot_be_meant_is_refused_and_says_what_is(
    ask: Asker, served: Served, action: str, body: object, message: str
) -> None:
    before = list(served.commands.asked)
    answer, text = ask(f"/api/{action}", body)
    assert answer.status == 400
    assert message in json.loads(text)["message"]
    assert served.commands.asked == before


def test_a_body_that_is_nested_without_end_is_no_json(served: Served) -> None:
    done = asyncio.run(act(cast(Commands, served.commands), "pause", b"[" * 60_000))
    assert done.status == "400 Bad Request"
    assert done.fields["message"].startswith("the body is not JSON: ")


# --- a real daemon -----------------------------------------------------------------------------------------------


def test_changes_are_made_in_the_daemon_and_named_in_its_log(shown: DaemonProcess) -> None:
    ask = asker_of(shown)
    with shown.connect() as client:
        client.create_tables([table("a"), table("b", arena="both"), table("c", arena="both"), table("d", shards=2)])
        handle = client.table("a")
        handle.insert({"x": np.ones(3, np.float32), "n": 4})
        assert ask.change("pause", table="a", inserts=True, samples=False) == (200, {"ok": True})
        assert (handle.info().paused_inserts, handle.info().paused_samples) == (True, False)
        assert ask.change("resume", table="a")[0] == 200
        assert not handle.info().paused_inserts
        ratio = {"samples_per_insert": 4, "min_size_to_sample": 10, "error_buffer": 20}
        assert ask.change("set_ratio", table="a", **ratio)[0] == 200
        assert (handle.info().samples_per_insert, handle.info().min_diff) == (4, 20)
        assert ask.change("set_ratio", table="a", samples_per_insert=8)[0] == 200
        info = handle.info()
        assert (info.samples_per_insert, info.min_size_to_sample, info.min_diff, info.max_diff) == (8, 10, 60, 100)
        assert ask.change("set_ratio", table="d", **ratio)[0] == 200
        assert ask.change("set_ratio", table="d", samples_per_insert=2)[0] == 200
        ratios = [each["samples_per_insert"] for each in client.stats()["arenas"]["d~0"]["tables"].values()]
        assert ratios == [2]
        assert ask.change("set_ratio", table="d~0", samples_per_insert=2)[0] == 400
        assert ask.change("reset", table="a")[0] == 200
        assert len(handle) == 0
        status, saved = ask.change("checkpoint")
        assert status == 200
        assert os.path.exists(saved["path"])
        status, refused = ask.change("drop", tables=["b"])
        assert status == 409
        assert "shares arena 'both'" in refused["message"]
        assert ask.change("drop", tables=["b", "c"])[0] == 200
        status, refused = ask.change("reset", table="b")
        assert (status, refused["error"]) == (404, "TableNotFound")
        assert "'b'" in refused["message"]
        status, refused = ask.change("pause", table="d~0", inserts=False, samples=False)
        assert status == 400
        assert set(client.tables()) == {"a", "d"}
        found = json.loads(ask("/api/stats")[1])["arenas"]
        assert set(found) == {"a", "d~0", "d~1"}
        assert "shmreplayd" in shown.log()
        assert "request of the page: drop_tables tables=['b', 'c']" in shown.log()
        client.drop_tables(["a", "d"])


def test_at_a_unix_socket_it_is_the_users_or_the_groups_and_gone_at_the_end(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "web.sock"
    daemon = make_daemon().start("--web", str(path))
    token_path = pathlib.Path(f"{daemon.socket}.token")
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_path.stat().st_mode & 0o777 == 0o600
    ask = asker_of(daemon)
    assert ask("/")[0].status == 200
    assert ask.change("token") == (200, {"ok": True})
    first = ask.token
    daemon.kill()
    daemon.start("--web", str(path), "--group", str(os.getgid()))
    assert path.stat().st_mode & 0o777 == 0o660
    assert token_path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_gid == token_path.stat().st_gid == os.getgid()
    again = asker_of(daemon)
    assert token_path.read_text(encoding="ascii").strip() != first
    assert again("/api/token", {}, Authorization=f"Bearer {first}")[0].status == 401
    assert daemon.stop() == 0
    assert not path.exists()
    assert not token_path.exists()
    assert "Traceback" not in daemon.log()


def test_a_daemon_that_cannot_show_its_page_does_not_start(make_daemon: StartDaemon, shown: DaemonProcess) -> None:
    taken = asker_of(shown).address.removeprefix("http://")
    other = make_daemon()
    said = other.fail("--web", taken)
    assert f"shmreplayd: cannot listen for the page at {taken}: Address already in use; choose another port\n" in said
    os.mkdir(f"{other.socket}.token")
    said = other.fail("--web", "127.0.0.1:0")
    assert f"shmreplayd: cannot write the token of the page to {other.socket}.token: Is a directory; the daemon" in said
    os.rmdir(f"{other.socket}.token")
    assert other.left_behind() == []


@pytest.mark.long
def test_connections_that_send_nothing_take_at_most_64_descriptors(shown: DaemonProcess) -> None:
    ask = asker_of(shown)
    silent = [ask.connect() for _ in range(64)]
    try:
        with ask.connect() as too_many:
            assert too_many.recv(1) == b""
    finally:
        for sock in silent:
            sock.close()

    def is_shown() -> bool:
        try:
            return ask("/")[0].status == 200
        except (http.client.RemoteDisconnected, ConnectionResetError):
            return False  # the daemon has not seen all of them go yet

    eventually(is_shown)
