"""Formats of the log: lines of text or JSON on stderr, or entries with fields in systemd's journal."""

from __future__ import annotations

import datetime
import json
import logging
import os
import socket
import struct
import sys

from shmreplay.errors import ShmReplayError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS = ("text", "json", "journal")
JOURNAL_SOCKET = "/run/systemd/journal/socket"
MAX_MESSAGE = 32 * 2**10  # characters; an entry with all its fields then fits into one datagram
_PRIORITIES = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)  # syslog's numbers; 7 (debug) for lower levels


def configure_logs(level: str, form: str, instance: str, journal: str = JOURNAL_SOCKET) -> None:
    """Sets up the log, replacing any earlier set-up. Raises ShmReplayError if the journal cannot be reached."""
    use_handler(level, make_handler(form, instance, journal))


def use_handler(level: str, handler: logging.Handler) -> None:
    """Makes this the only handler of the log."""
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


def make_handler(form: str, instance: str, journal: str = JOURNAL_SOCKET) -> logging.Handler:
    """Makes the handler for a format. Raises ShmReplayError if the journal cannot be reached."""
    if form == "journal":
        return JournalHandler(instance, journal)
    handler = logging.StreamHandler(sys.stderr)
    line = f"shmreplayd[{instance}] %(levelname)s %(message)s"
    handler.setFormatter(JsonFormatter(instance) if form == "json" else logging.Formatter(line))
    return handler


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time (UTC), level, instance, pid, message, and exception if there is one."""

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        entry = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "instance": self._instance,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class JournalHandler(logging.Handler):
    """Sends records to systemd's journal by its native protocol: `journalctl SHMREPLAY_INSTANCE=default` finds them.

    Raises ShmReplayError if no journal listens there. If the journal stops later, records go to stderr instead.
    """

    def __init__(self, instance: str, path: str = JOURNAL_SOCKET) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())  # the message alone; basicConfig would add level and name
        self._instance = instance
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._path = path
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise ShmReplayError(
                f"log.format is 'journal', but systemd's journal cannot be reached: {path}: {error.strerror}; use "
                "'text' or 'json'"
            ) from error

    def emit(self, record: logging.LogRecord) -> None:
        message = self.format(record)
        try:
            self._socket.sendto(self._entry(record, message), self._path)
        except OSError as error:
            print(f"{record.levelname} {message} (not in the journal: {error.strerror})", file=sys.stderr)

    def _entry(self, record: logging.LogRecord, message: str) -> bytes:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        fields = {
            "MESSAGE": message[:MAX_MESSAGE],
            "PRIORITY": priority,
            "SYSLOG_IDENTIFIER": "shmreplayd",
            "SHMREPLAY_INSTANCE": self._instance,
            "CODE_FILE": record.pathname,
            "CODE_LINE": record.lineno,
            "CODE_FUNC": record.funcName,
        }
        return b"".join(_field(name, str(value)) for name, value in fields.items())

    def close(self) -> None:
        self._socket.close()
        super().close()


def _field(name: str, value: str) -> bytes:
    """`NAME=value`; or, for a value of several lines, the name, the length and the value."""
    encoded = os.fsencode(value)
    if b"\n" not in encoded:
        return b"%s=%s\n" % (name.encode(), encoded)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(encoded)), encoded)
