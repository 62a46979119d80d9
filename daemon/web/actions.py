"""What can be changed from the page: `POST /api/NAME` with a JSON object, which becomes a command of the daemon."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shmreplay.daemon.access import Peer
from shmreplay.daemon.commands import Caller, Commands
from shmreplay.daemon.reaper import ClientProcess
from shmreplay.errors import ShmReplayError, TableNotFound
from shmreplay.protocol import Message, ProtocolError, error_answer
from shmreplay.rate_limiters import SampleToInsertRatio

log = logging.getLogger("shmreplayd")

LOCK_TIMEOUT_S = 10.0  # for an arena's lock; a person waits for the answer


class _Page(Peer):
    """The page, as the log names it: whoever has the token, whose process is not known."""

    def __str__(self) -> str:
        return "the page"


_PAGE = _Page(0, os.geteuid(), os.getegid(), frozenset())


@dataclass(frozen=True)
class Done:
    """What came of it: a status, and the fields of the answer."""

    status: str
    fields: dict[str, Any]


def _of_table(command: str, *fields: str) -> Callable[[Mapping[str, Any]], Message]:
    """A command to a table; what it needs is checked where the command is."""
    return lambda asked: {"command": command, "timeout_s": LOCK_TIMEOUT_S, **_only(asked, "table", *fields)}


def _drop(asked: Mapping[str, Any]) -> Message:
    return {"command": "drop_tables", "timeout_s": LOCK_TIMEOUT_S, **_only(asked, "tables")}


def _set_ratio(asked: Mapping[str, Any]) -> Message:
    numbers = _only(asked, "table", "samples_per_insert", "min_size_to_sample", "error_buffer")
    table = numbers.pop("table")
    limiter = SampleToInsertRatio(**numbers).to_wire()
    fields = {"table": table, "rate_limiter": limiter, "rebase": True, "timeout_s": LOCK_TIMEOUT_S}
    return {"command": "set_rate_limiter", **fields}


def _checkpoint(asked: Mapping[str, Any]) -> Message:
    return {"command": "checkpoint", **_only(asked)}


ACTIONS: dict[str, Callable[[Mapping[str, Any]], Message]] = {
    "pause": _of_table("pause", "inserts", "samples"),
    "resume": _of_table("resume"),
    "reset": _of_table("reset"),
    "set_ratio": _set_ratio,
    "drop": _drop,
    "checkpoint": _checkpoint,
}


async def act(commands: Commands, name: str, body: bytes) -> Done:
    """Does what was asked for. What is refused, or fails, is told in the answer and in the log."""
    try:
        request = ACTIONS[name](_object(body))
        log.info("the page asks: %s", _told(request))
        answer = await commands.run(request, Caller(_PAGE, _no_process, lambda describe: None))
    except Exception as error:  # told to who asked, whatever it is
        status = _status(error)
        if status.startswith("500"):
            log.exception("what the page asked for failed: %s", name)
        else:
            log.warning("what the page asked for failed: %s: %s", name, error)
        return Done(status, error_answer(error))
    return Done("200 OK", {"ok": True, **answer.fields})


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body or b"{}")
    except ValueError as error:
        raise ValueError(f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise ValueError(f"the body is {asked!r:.100}; expected a JSON object")
    return asked


def _only(asked: Mapping[str, Any], *names: str) -> Message:
    """The fields of these names. Raises ValueError if one is missing or another is there."""
    if set(asked) != set(names):
        raise ValueError(f"expected {', '.join(names) or 'nothing'}; got {', '.join(sorted(asked)) or 'nothing'}")
    return {name: asked[name] for name in names}


def _told(request: Message) -> str:
    command, *fields = request.items()
    return " ".join([str(command[1]), *(f"{name}={value!r}" for name, value in fields if name != "timeout_s")])


def _no_process() -> ClientProcess:
    raise ProcessLookupError("the page is no process that attaches")


def _status(error: Exception) -> str:
    if isinstance(error, TableNotFound):
        return "404 Not Found"
    if isinstance(error, TimeoutError):
        return "504 Gateway Timeout"
    if isinstance(error, (ValueError, TypeError, ProtocolError)):
        return "400 Bad Request"
    return "409 Conflict" if isinstance(error, (ShmReplayError, OSError)) else "500 Internal Server Error"
