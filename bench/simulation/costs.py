"""Costs: what the simulation takes from a machine, in nanoseconds."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Costs:
    """What calls and the kernel take on a machine, in nanoseconds unless a line says otherwise. Steps have 400 B.

    Attributes:
        outside_ns: of one `insert`, outside the lock.
        insert_hold_ns: of one `insert`, inside, when the same core had the lock before.
        moved_hold_ns: how much longer a hold is when another core had the lock before: it reads the lines that the
            other one wrote.
        batch_ns: of one `sample` of 256 items with its update, outside the lock.
        draw_hold_ns: one hold of 16 draws.
        update_hold_ns: one hold of 32 updates.
        look_ns: from one look of a spinner at the lock to the next.
        spin_ns: how long a contender spins before it sleeps. A constant of the core.
        gap_ns: how long a call leaves the lock free between two of its holds while others are at work. A constant of
            the core, in pauses.
        wake_ns: from a wake until the woken process runs on another core.
        wake_call_ns: what a wake takes of the process that gives it.
        sleep_call_ns: what going to sleep takes; assumed to be as long.
        slice_ns: how long a process keeps a core that others wait for; assumed.
    """

    outside_ns: float
    insert_hold_ns: float
    moved_hold_ns: float
    batch_ns: float
    draw_hold_ns: float
    update_hold_ns: float
    look_ns: float
    spin_ns: float
    gap_ns: float
    wake_ns: float
    wake_call_ns: float
    sleep_call_ns: float
    slice_ns: float

    def with_sockets(self, factor: float) -> "Costs":
        """The same machine, but lines take `factor` times as long from core to core."""
        return dataclasses.replace(self, moved_hold_ns=factor * self.moved_hold_ns)
