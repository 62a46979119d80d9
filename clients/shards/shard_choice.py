"""Which shard of a table a writer gets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shmreplay import _core

_chosen = itertools.count()


def choose_shard(arenas: Sequence[_core.Arena]) -> int:
    """The shard with the fewest open streams.

    Of those with equally many, it goes by the process' session, which no other living process has, and by how many
    writers this process has chosen for: so processes that begin at once, when no stream is open yet, spread evenly, and
    one that takes the place of a dead one gets its shard.
    """
    streams = [arena.open_streams for arena in arenas]
    first = arenas[0].session + next(_chosen)
    return min(range(len(arenas)), key=lambda number: (streams[number], (number - first) % len(arenas)))
