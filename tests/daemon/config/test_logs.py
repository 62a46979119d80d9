"""The log as systemd's journal gets it, at a real datagram socket."""

from __future__ import annotations

import logging
import pathlib
import socket
import struct
from collections.abc import Iterator

import pytest

import shmreplay as sr
from shmreplay.daemon.config.logs import MAX_MESSAGE, JournalHandler, configure_logs


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(100)
        yield listening


@pytest.fixture
def log(journal: socket.socket) -> Iterator[logging.Logger]:
    """The root logger, with this handler alone."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []  # else they are closed
    configure_logs("DEBUG", "journal", "one", journal.getsockname())
    yield root
    root.handlers[0].close()
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)


def entry(journal: socket.socket) -> dict[str, str]:
    """One datagram, read as journald reads it."""
    rest, fields = journal.recv(2**20), {}
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, has_value, value = line.partition(b"=")
        if not has_value:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[9 + length :]
        fields[name.decode()] = value.decode()
    return fields


def test_an_entry_has_fields_to_search_by(log: logging.Logger, journal: socket.socket) -> None:
    log.warning("table %r: %d=%d", "é", 1, 2)
    found = entry(journal)
    assert found["MESSAGE"] == "table 'é': 1=2"
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["SHMREPLAY_INSTANCE"]) == ("4", "shmreplayd", "one")
    assert found["CODE_FILE"] == __file__
    assert found["CODE_FUNC"] == "test_an_entry_has_fields_to_search_by"
    for level, priority in ((logging.DEBUG, "7"), (logging.INFO, "6"), (logging.ERROR, "3"), (logging.CRITICAL, "3")):
        log.log(level, "x")
        assert entry(journal)["PRIORITY"] == priority


def test_a_message_of_several_lines_stays_one_entry(log: logging.Logger, journal: socket.socket) -> None:
    try:
        raise ValueError("PRIORITY=0\nPRIORITY=1")
    except ValueError:
        log.exception("failed")
    found = entry(journal)
    assert found["MESSAGE"].startswith("failed\nTraceback (most recent call last):\n")
    assert found["MESSAGE"].endswith("ValueError: PRIORITY=0\nPRIORITY=1")
    assert found["PRIORITY"] == "3"


def test_a_message_that_no_datagram_holds_is_cut(log: logging.Logger, journal: socket.socket) -> None:
    log.info("é" * 2**20)
    assert entry(journal)["MESSAGE"] == "é" * MAX_MESSAGE


def test_without_a_journal_it_is_refused_and_when_it_ends_stderr_gets_the_entries(
    tmp_path: pathlib.Path, log: logging.Logger, journal: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(sr.ShmReplayError, match=r"journal cannot be reached: .*/none: No such file or directory; use"):
        JournalHandler("one", str(tmp_path / "none"))
    journal.close()
    log.error("lost?")
    assert capsys.readouterr().err == "ERROR lost? (not in the journal: Connection refused)\n"
