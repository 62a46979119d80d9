"""AttachedClient: the part of a client that its handles use: one connection, and the arenas it is attached to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_timeout
from shmreplay.clients.link.attachments import Attachment, Mapping, mappings
from shmreplay.clients.link.connection import Connection, Reply, RequestTimeout, fork_count
from shmreplay.errors import DaemonUnavailable, SegmentFailed, ShmReplayError, TableNotFound
from shmreplay.protocol import default_socket_paths, socket_path

if TYPE_CHECKING:
    from typing_extensions import Self

DETACH_TIMEOUT_S = 5.0
NO_TABLE_ADVICE = (
    "; call create_tables([...]) first, in every process: the first call creates the tables, later calls do nothing"
)


class Dependent(Protocol):
    """An object that is closed with its client: a view or a sampler."""

    def close(self) -> None:
        """Ends it. Idempotent."""


class AttachedClient:
    """Attaches handles to their arenas, again after a fork or a restart of the daemon, and detaches at the end."""

    def __init__(self, address: str | None = None, timeout_s: float | None = 10) -> None:
        paths = default_socket_paths() if address is None else [socket_path(address)]
        if address is not None and os.path.isdir(paths[0]):
            raise ValueError(f"address {address!r} is a directory; give the path of the socket in it")
        self.connection = Connection(paths, check_timeout(timeout_s))
        self.lock_timeout_s: float | None = None  # the longest wait for an arena's lock while attaching
        self.no_table_advice = NO_TABLE_ADVICE
        self._attachments: dict[str, Attachment] = {}
        self._held: dict[int, Mapping] = {}
        self._closed = _core.Flag()  # calls that wait look at it once a second
        self._dependents = WeakValueDictionary[int, Dependent]()  # by identity

    @property
    def address(self) -> str:
        """The socket's path."""
        return self.connection.paths[0]

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set

    # --- attaching -----------------------------------------------------------------------------------------------

    def _attach(self, name: str, *, refresh: bool = False) -> Attachment:
        """Returns this process' attachment to a table. `refresh` asks the daemon even if the known one is usable."""
        self._check_open()
        known = self._attachments.get(name)
        if known is not None and not refresh and self._is_usable(known):
            return known
        while (attachment := self._open(name)) is None:
            self._check_open()
        return attachment

    def _open(self, name: str) -> Attachment | None:
        """Asks the daemon. Returns None if it must be asked again, since the session that it named was ended meanwhile.

        Another client of this process may have ended it. No lock is held over a request, so this is seen only now.
        """
        own = mappings()
        num_ended = own.num_ended
        try:
            reply = self._request("open", takes_fds=True, table=name, timeout_s=self.lock_timeout_s)
        except TableNotFound as error:
            self._forget(name)
            raise TableNotFound(f"{error}{self.no_table_advice}") from error
        mapping, attachment = own.take(reply, id(self))
        if mapping.ending is not None:
            mapping.ending.wait()
            return None
        with own.lock:
            known = self._attachments.get(name)
            if known is not None and known.arena is not attachment.arena:
                self._forget(name)
            self._held[id(mapping)] = mapping
            self._attachments[name] = attachment
        if self.is_closed:  # while the daemon was asked
            self._detach_all()
            self._check_open()
        # The mapping may be one that another thread made of an answer as old as this one.
        if own.num_ended != num_ended and not self._is_usable(attachment):
            self._forget(name)
            return None
        return attachment

    def _is_usable(self, known: Attachment) -> bool:
        """Whether the attachment is this process' own, its table still exists and its session is still ours."""
        if known.fork_count != fork_count() or known.arena.table(known.index).dropped:
            return False
        own = [(held.session, held.generation) for held in list(self._held.values()) if held.arena is known.arena]
        return any((entry["session"], entry["generation"]) in own for entry in known.arena.sessions())

    def _forget(self, name: str) -> None:
        """Forgets a table that no longer exists. Its memory is unmapped when no handle refers to it any more."""
        own = mappings()
        with own.lock:
            for other, attachment in list(self._attachments.items()):
                if other != name and attachment.table.owner.name == name:
                    self._forget(other)  # a shard of the table
            gone = self._attachments.pop(name, None)
            if gone is None or any(other.arena is gone.arena for other in list(self._attachments.values())):
                return
            for key, mapping in list(self._held.items()):
                if mapping.arena is gone.arena:
                    self._held.pop(key, None)
                    if own.release(mapping, id(self)):
                        own.ended(mapping)

    def _detach_all(self) -> None:
        own = mappings()
        while self._held:
            try:
                _, mapping = self._held.popitem()
            except KeyError:  # another thread, or a signal handler, was faster
                break
            if own.release(mapping, id(self)):
                try:
                    self._detach(mapping)
                finally:
                    own.ended(mapping)
        self._attachments = {}

    def _detach(self, mapping: Mapping) -> None:
        if not mapping.arena.end_calls(DETACH_TIMEOUT_S):
            return  # a thread still works on rows; the session ends with this process
        fields = {"arena": mapping.name, "session": mapping.session, "generation": mapping.generation}
        # If the daemon is gone or cannot lock the arena now, it takes the session back when this process ends. A
        # damaged arena has no session to take back.
        with contextlib.suppress(DaemonUnavailable, RequestTimeout, PermissionError, SegmentFailed):
            self.connection.request("detach", fields, timeout_s=DETACH_TIMEOUT_S, waits_for_daemon=False)

    # --- requests ------------------------------------------------------------------------------------------------

    def _request(
        self,
        command: str,
        wait_s: float | None = None,
        *,
        takes_fds: bool = False,
        is_repeatable: bool = True,
        on_progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> Reply:
        self._check_open()
        check_timeout(wait_s)
        check_timeout(fields.get("timeout_s"))
        return self.connection.request(
            command,
            fields,
            timeout_s=wait_s,
            takes_fds=takes_fds,
            is_repeatable=is_repeatable,
            on_progress=on_progress,
        )

    def _check_open(self) -> None:
        if self.is_closed:
            raise ShmReplayError(f"the client of {self.address} is closed; connect anew")

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends this process' sessions unless another client of the process uses them. Handles raise from now on."""
        if self.is_closed:
            return
        self._closed.set()
        for reference in self._dependents.valuerefs():  # a list made at once, so other threads may add to it
            if (dependent := reference()) is not None:
                dependent.close()
        try:
            self._detach_all()
        finally:
            self.connection.close()

    def _add_dependent(self, dependent: Dependent) -> None:
        """Closes `dependent` together with this client. Raises ShmReplayError if the client is already closed."""
        self._dependents[id(dependent)] = dependent
        if self.is_closed:
            dependent.close()
            self._check_open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Self], tuple[str | None, float | None]]:
        is_found = len(self.connection.paths) == 1
        return type(self), (self.address if is_found else None, self.connection.timeout_s)

    def __repr__(self) -> str:
        return f"<shmreplay.{type(self).__name__} {self.address}{' closed' if self.is_closed else ''}>"
