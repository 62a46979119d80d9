"""Changes made from the page: `POST /api/NAME` with a JSON object, which becomes a command of the daemon."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shmreplay.daemon.arenas.access import Peer
from shmreplay.daemon.arenas.reaper import ClientProcess
from shmreplay.daemon.config.open_files import blame_daemon
from shmreplay.daemon.control.commands import Caller, Commands
from shmreplay.errors import ShmReplayError, TableNotFound
from shmreplay.protocol import Message, ProtocolError, error_answer
from shmreplay.rules.limiter_change import changed_limiter, whole_limiter

log = logging.getLogger("shmreplayd")

LOCK_TIMEOUT_S = 10.0  # for an arena's lock: a person waits for the answer


class _Page(Peer):
    """The page as the caller of a command. Its process is unknown: anybody with the token can use it."""

    def __str__(self) -> str:
        return "the page"


_PAGE = _Page(0, os.geteuid(), os.getegid(), frozenset())


@dataclass(frozen=True)
class Done:
    """The result of an action: HTTP status, and the fields of the answer."""

    status: str
    fields: dict[str, Any]


Action = Callable[[Commands, Mapping[str, Any]], Awaitable[Message]]


def _of_table(command: str, *fields: str) -> Action:
    """An action that is a command on one table; the command itself checks the values."""

    async def request(commands: Commands, asked: Mapping[str, Any]) -> Message:
        return {"command": command, "timeout_s": LOCK_TIMEOUT_S, **_only(asked, "table", *fields)}

    return request


async def _drop(commands: Commands, asked: Mapping[str, Any]) -> Message:
    return {"command": "drop_tables", "timeout_s": LOCK_TIMEOUT_S, **_only(asked, "tables")}


async def _set_ratio(commands: Commands, asked: Mapping[str, Any]) -> Message:
    """Changes only the fields given, as `shmreplay set-ratio` does."""
    numbers = _only(asked, "table", "samples_per_insert", optional=("min_size_to_sample", "error_buffer"))
    table = numbers["table"]
    limiter = changed_limiter(
        whole_limiter(table, await commands.infos(table)),
        numbers["samples_per_insert"],
        numbers.get("min_size_to_sample"),
        numbers.get("error_buffer"),
    )
    fields = {"table": table, "rate_limiter": limiter.to_wire(), "rebase": True, "timeout_s": LOCK_TIMEOUT_S}
    return {"command": "set_rate_limiter", **fields}


async def _checkpoint(commands: Commands, asked: Mapping[str, Any]) -> Message:
    return {"command": "checkpoint", **_only(asked)}


ACTIONS: dict[str, Action] = {
    "pause": _of_table("pause", "inserts", "samples"),
    "resume": _of_table("resume"),
    "reset": _of_table("reset"),
    "set_ratio": _set_ratio,
    "drop": _drop,
    "checkpoint": _checkpoint,
}


async def act(commands: Commands, name: str, body: bytes) -> Done:
    """Carries out an action. An error goes into the answer and the log."""
    try:
        request = await ACTIONS[name](commands, _object(body))
        log.info("request of the page: %s", _told(request))
        answer = await commands.run(request, Caller(_PAGE, _no_process, lambda describe: None))
    except Exception as error:  # the answer has the error, whatever it is
        status = _status(error)
        if status.startswith("500"):
            log.exception("a request of the page failed: %s", name)
        else:
            log.warning("a request of the page failed: %s: %s", name, error)
        return Done(status, error_answer(blame_daemon(error)))
    return Done("200 OK", {"ok": True, **answer.fields})


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise ValueError(f"the body is not JSON: {error}") from error
    if not isinstance(asked, dict):
        raise ValueError(f"the body is {asked!r:.100}; expected a JSON object")
    return asked


def _only(asked: Mapping[str, Any], *names: str, optional: tuple[str, ...] = ()) -> Message:
    """Returns the fields. Raises ValueError if a required one is missing or an unknown one is there."""
    if not set(names) <= set(asked) <= {*names, *optional}:
        expected = ", ".join(names) or "nothing"
        more = f", and optionally {', '.join(optional)}" if optional else ""
        raise ValueError(f"expected {expected}{more}; got {', '.join(sorted(asked)) or 'nothing'}")
    return dict(asked)


def _told(request: Message) -> str:
    command, *fields = request.items()
    return " ".join([str(command[1]), *(f"{name}={value!r}" for name, value in fields if name != "timeout_s")])


def _no_process() -> ClientProcess:
    raise ProcessLookupError("the page is not a process that can attach")


def _status(error: Exception) -> str:
    if isinstance(error, TableNotFound):
        return "404 Not Found"
    if isinstance(error, TimeoutError):
        return "504 Gateway Timeout"
    if isinstance(error, (ValueError, TypeError, ProtocolError)):
        return "400 Bad Request"
    return "409 Conflict" if isinstance(error, (ShmReplayError, OSError)) else "500 Internal Server Error"
