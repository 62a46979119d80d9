"""transitions_spec: the table of a replay buffer that counts transitions."""

from __future__ import annotations

import math
from dataclasses import replace

from shmreplay import NStep, Table
from shmreplay.base.checks import check_int
from shmreplay.clients.transitions.layout import Layout, Part
from shmreplay.columns.signature import Signature
from shmreplay.rate_limiters import MinSize, RateLimiter
from shmreplay.rules.windows import AtStart, Window
from shmreplay.selectors import Selector

SPARE_STEPS = 64  # a stream, besides its window: rows that are no item yet
MOST_STREAMS, LEAST_STREAMS = 1024, 64  # of all processes that write
OPEN_STEPS = 65_536  # of the windows of all streams together, as long as there are LEAST_STREAMS


def transitions_spec(
    name: str,
    layout: Layout,
    max_size: int,
    *,
    n_steps: int,
    at_start: AtStart,
    num_streams: int | None,
    steps_per_episode: float,
    sampler: Selector,
    rate_limiter: RateLimiter | None,
    drops_short: bool = False,
    window: Window | None = None,
) -> Table:
    """The table of so many transitions.

    Args:
        num_streams: environments of the one process that writes; None: several processes write, of any number.
        steps_per_episode: steps of an episode, on average; each has one more row.
        drops_short: whether the last starts of an episode, which have fewer than `n_steps`, are no transitions.
        window: of the items, if they are not transitions of `n_steps`.

    Raises:
        ValueError, TypeError: an argument is out of range.
    """
    max_size = check_int("replay buffer", "buffer_size", max_size, 1, 2**31 - 2)
    n_steps = check_int("replay buffer", "n_steps", n_steps, 1, 2**20)
    if not steps_per_episode >= 1:
        raise ValueError(f"replay buffer: steps_per_episode is {steps_per_episode!r}; expected at least 1")
    frames = layout.parts.frames if isinstance(layout.parts, Part) else 1
    streams = num_streams or 1
    if window is None:
        stack = {"observation": frames} if frames > 1 else None
        window = NStep(n_steps, stack=stack, at_start=at_start)
    signature = layout.signature()
    span = window.num_steps(Signature.from_tree(signature, name))
    return Table(
        name,
        signature,
        max_size,
        item=replace(window, at_end="skip") if drops_short else window,
        sampler=sampler,
        rate_limiter=MinSize(1) if rate_limiter is None else rate_limiter,
        capacity_steps=math.ceil(max_size * (1 + 1 / steps_per_episode)) + (SPARE_STEPS + span) * streams,
        max_streams=_shared_streams(span) if num_streams is None else num_streams + 1,  # one more for saved rows
    )


def _shared_streams(span: int) -> int:
    """How many streams processes share. Memory for the window of each is reserved, so there are fewer of long ones."""
    return max(LEAST_STREAMS, min(MOST_STREAMS, OPEN_STEPS // span))
