"""shmreplay: experience replay for one big machine, in shared memory that outlives the processes that use it.

General layout: what daemon and clients share is in `shmreplay`; `shmreplay.daemon` is one process; `shmreplay.clients`
are the ends that actors and learners hold. The names below are the public ones.
"""

import numpy as _numpy  # noqa: F401  (first: what keeps numpy from loading is not the core's fault)

try:
    from shmreplay import _core  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"shmreplay's native core could not be loaded ({error}). Install a wheel (pip install shmreplay), or build it "
        "from a checkout: pip install --no-build-isolation -e . (needs a C++20 compiler). A folder named shmreplay in "
        "the working directory hides the installed package: run from elsewhere, or set PYTHONSAFEPATH=1."
    ) from error

from shmreplay import rate_limiters, selectors
from shmreplay.clients.batch import Batch
from shmreplay.clients.client import Client, connect
from shmreplay.clients.info import TableInfo
from shmreplay.clients.server import Server
from shmreplay.clients.table import TableHandle
from shmreplay.clients.writer import Writer
from shmreplay.errors import (
    ArenaFull,
    DaemonUnavailable,
    InternalError,
    LayoutMismatch,
    RateLimitTimeout,
    SegmentFailed,
    SessionLost,
    ShmReplayError,
    SignatureMismatch,
    TableClosed,
    TableNotFound,
)
from shmreplay.patterns import Pattern, when
from shmreplay.priorities import sequence_priority, td_priority
from shmreplay.specs import ArraySpec
from shmreplay.tables import Table
from shmreplay.targets import n_step_targets
from shmreplay.windows import Episode, NStep, Sequence, Transition, Unroll, Window

__version__ = "0.1.0"

__all__ = [
    "ArenaFull",
    "ArraySpec",
    "Batch",
    "Client",
    "DaemonUnavailable",
    "Episode",
    "InternalError",
    "LayoutMismatch",
    "NStep",
    "Pattern",
    "RateLimitTimeout",
    "SegmentFailed",
    "Sequence",
    "Server",
    "SessionLost",
    "ShmReplayError",
    "SignatureMismatch",
    "Table",
    "TableClosed",
    "TableHandle",
    "TableInfo",
    "TableNotFound",
    "Transition",
    "Unroll",
    "Window",
    "Writer",
    "connect",
    "n_step_targets",
    "rate_limiters",
    "selectors",
    "sequence_priority",
    "td_priority",
    "when",
]
