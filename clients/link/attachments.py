"""The arenas that this process has mapped: each once, shared by its clients and handles, unmapped with the last."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from shmreplay import _core
from shmreplay.clients.link.connection import Reply, fork_count
from shmreplay.errors import SegmentFailed
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
    """The tables of a mapped arena. Raises SegmentFailed if that part of its index is damaged."""
    try:
        return unpack_specs(arena.specs)
    except (TypeError, ValueError) as error:
        raise SegmentFailed(
            f"arena {arena.name!r}: the part of its index that describes its tables is damaged ({error}); restart the "
            "daemon with --discard, or restore a checkpoint"
        ) from error


@dataclass(eq=False)
class Mapping:
    """One mapped arena and its session. The arena is unmapped when the last attachment to it is gone."""

    arena: _core.Arena
    name: str
    session: int
    generation: int
    num_users: int = 0


@dataclass
class Mappings:
    """All mappings of this process, by the identity of the index segment and the session in it.

    `lock` is held from a request to open or detach until its result is noted here. Otherwise one client could end a
    session while another client is about to get the same one.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_identity: dict[tuple[int, int, int, int], Mapping] = field(default_factory=dict)

    def take(self, reply: Reply) -> tuple[Mapping, Attachment]:
        """Maps the segments of a reply to `open`, unless they are mapped already, and closes its descriptors.

        Raises SegmentFailed or LayoutMismatch if this process cannot use the segments.
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
            mapping = self.by_identity.get(identity)
            if mapping is None:
                arena = _core.Arena(index_fd, data_fd, session, generation)
                mapping = self.by_identity[identity] = Mapping(arena, name, session, generation)
        finally:
            close_all(reply.fds)
        table = Table.from_wire(fields["spec"])
        return mapping, Attachment(mapping.arena, int(fields["index"]), table, fork_count())

    def release(self, mapping: Mapping) -> bool:
        """Counts one user fewer. True if it was the last one and the mapping is this process' own, not its parent's."""
        mapping.num_users -= 1
        if mapping.num_users > 0 or mapping not in self.by_identity.values():
            return False
        self.by_identity = {key: value for key, value in self.by_identity.items() if value is not mapping}
        return True


_mappings = Mappings()


def mappings() -> Mappings:
    """The mappings of this process."""
    return _mappings


def _after_fork() -> None:
    global _mappings
    _mappings = Mappings()  # the parent's sessions are not ours, and a thread of it may have held the lock


os.register_at_fork(after_in_child=_after_fork)
