"""SharedState: what all conversations of one daemon share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from shmreplay.daemon.arenas.access import Access
from shmreplay.daemon.arenas.reaper import Reaper
from shmreplay.daemon.control.commands import Answer, Commands
from shmreplay.daemon.control.connection import MESSAGE_TIMEOUT_S
from shmreplay.daemon.loop.workers import Workers

Work = tuple[bytes, Answer]  # the packed answer, and the answer itself


@dataclass
class SharedState:
    """Shared by all conversations."""

    commands: Commands
    access: Access
    reaper: Reaper
    workers: Workers
    instance: str
    max_clients: int
    num_clients: Callable[[], int]
    message_timeout_s: float = MESSAGE_TIMEOUT_S
    incarnation: str = field(default_factory=lambda: os.urandom(8).hex())
    abandoned: set[asyncio.Task[Work]] = field(default_factory=set)  # requests whose client has left
