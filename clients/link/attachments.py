"""The arenas that this process has mapped: each once, shared by its clients and handles, unmapped with the last."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from shmreplay import _core
from shmreplay.clients.link.connection import Reply, fork_count
from shmreplay.columns.specs import MissingPackage
from shmreplay.errors import SegmentFailed, ShmReplayError
from shmreplay.protocol import ProtocolError, close_all
from shmreplay.segments.segment import check_received
from shmreplay.tables.packed_specs import unpack_specs
from shmreplay.tables.table import Table


@dataclass(frozen=True)
class Attachment:
    """A table that this process can work on: its mapped arena, its index there, its spec.

    It is of use only to the process with that `fork_count`; a forked child attaches again.
    """

    arena: _core.Arena
    index: int
    table: Table
    fork_count: int


def specs_of(arena: _core.Arena) -> tuple[Table, ...]:
    """The tables of a mapped arena. Raises SegmentFailed if that part of its index is damaged; MissingPackage."""
    try:
        return unpack_specs(arena.specs)
    except MissingPackage:
        raise
    except (TypeError, ValueError) as error:
        raise SegmentFailed(
            f"arena {arena.name!r}: the part of its index that describes its tables is damaged ({error}); restart the "
            "daemon with --discard, or restore a checkpoint"
        ) from error


class Ending:
    """The end of a session, for which its thread is asking the daemon."""

    def __init__(self, arena: str) -> None:
        self._arena = arena
        self._thread = threading.get_ident()
        self._is_over = threading.Event()

    def over(self) -> None:
        """Lets those go on that wait."""
        self._is_over.set()

    def wait(self) -> None:
        """Waits until it is over, which takes seconds at most. Raises ShmReplayError in that thread itself."""
        if self._thread == threading.get_ident():
            raise ShmReplayError(
                f"this thread was just ending its session in arena {self._arena!r} when a signal came; the handler "
                "cannot attach to that arena: let it return first"
            )
        self._is_over.wait()


@dataclass(eq=False)
class Mapping:
    """One mapped arena and its session. The arena is unmapped when the last attachment to it is gone."""

    arena: _core.Arena
    name: str
    session: int
    generation: int
    users: set[int] = field(default_factory=set)  # clients, by identity
    ending: Ending | None = None


Identity = tuple[int, int, int, int]  # device and inode of the index segment, session, generation


@dataclass
class Mappings:
    """All mappings of this process.

    `lock` is held for some instructions, and never over a request: a daemon that does not answer holds up nobody else.
    It is reentrant, because a signal handler may use a client in between. So each step leaves what another may find.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    by_identity: dict[Identity, Mapping] = field(default_factory=dict)
    num_ended: int = 0  # sessions that this process has ended

    def take(self, reply: Reply, user: int) -> tuple[Mapping, Attachment]:
        """Maps the segments of a reply to `open`, unless they are mapped already, and closes its descriptors.

        Returns the mapping, which has the user from now on unless it is ending, and the attachment. Raises
        SegmentFailed or LayoutMismatch if this process cannot use the segments, OSError if it lacks descriptors or
        address space.
        """
        fields = reply.fields
        try:
            if len(reply.fds) != 2:
                raise ProtocolError(f"the daemon sent {len(reply.fds)} descriptors, expected those of two segments")
            index_fd, data_fd = reply.fds
            name, owners = str(fields["arena"]), reply.owner_ids
            check_received(index_fd, f"the index segment of arena {name!r}", fields["index_bytes"], owners)
            check_received(data_fd, f"the data segment of arena {name!r}", fields["data_bytes"], owners)
            session, generation = int(fields["session"]), int(fields["generation"])
            status = os.fstat(index_fd)
            identity = (status.st_dev, status.st_ino, session, generation)
            table = Table.from_wire(fields["spec"])
            with self.lock:
                mapping = self.by_identity.get(identity)
                if mapping is None:
                    self._forget_dropped()
                    arena = _core.Arena(index_fd, data_fd, session, generation)
                    mapping = self.by_identity.setdefault(identity, Mapping(arena, name, session, generation))
                mapping.users.add(user)  # before the look: a release that comes in between sees it
                if mapping.ending is not None:
                    mapping.users.discard(user)
        finally:
            close_all(reply.fds)
        return mapping, Attachment(mapping.arena, int(fields["index"]), table, fork_count())

    def _forget_dropped(self) -> None:
        """Forgets arenas that were dropped: clients that nobody closed, as of a pickled handle, never release them."""
        for identity, mapping in list(self.by_identity.items()):
            if mapping.arena.table(0).dropped:
                self.by_identity.pop(identity, None)

    def release(self, mapping: Mapping, user: int) -> bool:
        """Removes a user. True if it was the last one, and the mapping is this process' own, not its parent's.

        The mapping is ending then, until `ended` is called.
        """
        with self.lock:
            mapping.users.discard(user)
            if mapping.users or mapping.ending is not None or mapping not in list(self.by_identity.values()):
                return False
            mapping.ending = Ending(mapping.name)
            if mapping.users:  # a signal handler has attached in between
                mapping.ending = None
                return False
            return True

    def ended(self, mapping: Mapping) -> None:
        """Forgets a mapping whose session was ended, or could not be."""
        with self.lock:
            self.num_ended += 1
            for identity, known in list(self.by_identity.items()):
                if known is mapping:
                    self.by_identity.pop(identity, None)
        if mapping.ending is not None:
            mapping.ending.over()


_mappings = Mappings()


def mappings() -> Mappings:
    """The mappings of this process."""
    return _mappings


def _after_fork() -> None:
    global _mappings
    _mappings = Mappings()  # the parent's sessions are not ours, and a thread of it may have held the lock


os.register_at_fork(after_in_child=_after_fork)
