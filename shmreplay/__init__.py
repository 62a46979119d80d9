"""shmreplay: experience replay for one big machine, in shared memory that outlives the processes that use it.

`shmreplay` has what the daemon and its clients share, `shmreplay.daemon` the daemon, `shmreplay.clients` what actors
and learners use. The names below are the public ones.
"""

import pathlib as _pathlib
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

import numpy as _numpy  # noqa: F401  (first, so that its own errors are not blamed on the core)

try:
    from shmreplay import _core  # noqa: F401
except ImportError as error:
    _folder = _pathlib.Path(__file__).resolve().parent
    if error.name == __name__ and (_folder.parent / "pyproject.toml").exists() and not list(_folder.glob("_core*.so")):
        raise ImportError(
            f"the source folder {_folder} hides the installed shmreplay: run outside {_folder.parent}, with "
            "scripts that lie outside it too, or set PYTHONSAFEPATH=1 (or python -P; Python 3.11 or later)"
        ) from error
    raise ImportError(
        f"shmreplay's native core could not be loaded ({error}). Install it with python -m pip install . in the "
        "clone (needs a C++20 compiler), or a wheel for this Python, as make wheel makes it."
    ) from error

from shmreplay import rate_limiters, selectors
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import (
    ArenaFull,
    CheckpointFailed,
    DaemonUnavailable,
    DamagedCheckpoint,
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
from shmreplay.rules.patterns import Pattern, when
from shmreplay.rules.priorities import sequence_priority, td_priority
from shmreplay.rules.targets import n_step_targets
from shmreplay.rules.windows import Episode, NStep, Sequence, Transition, Unroll, Window
from shmreplay.tables.table import Table
from shmreplay.version import VERSION

if _TYPE_CHECKING:
    from shmreplay.clients.batches.batch import Batch
    from shmreplay.clients.client import Client, connect
    from shmreplay.clients.mixes.mix import Mix, MixedBatch, mix
    from shmreplay.clients.samplers.sampler import Sampler
    from shmreplay.clients.samplers.view import View
    from shmreplay.clients.server import Server
    from shmreplay.clients.tables.info import TableInfo
    from shmreplay.clients.tables.table import TableHandle
    from shmreplay.clients.writers.vector_writer import VectorWriter
    from shmreplay.clients.writers.writer import Writer

__version__ = VERSION

__all__ = [
    "ArenaFull",
    "ArraySpec",
    "Batch",
    "CheckpointFailed",
    "Client",
    "DaemonUnavailable",
    "DamagedCheckpoint",
    "Episode",
    "InternalError",
    "LayoutMismatch",
    "Mix",
    "MixedBatch",
    "NStep",
    "Pattern",
    "RateLimitTimeout",
    "Sampler",
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
    "VectorWriter",
    "View",
    "Window",
    "Writer",
    "connect",
    "mix",
    "n_step_targets",
    "rate_limiters",
    "selectors",
    "sequence_priority",
    "td_priority",
    "when",
]

# What only actors and learners need is imported at its first use: a daemon starts in half the time without it.
_MODULES_OF_CLIENTS = {
    "Batch": "batches.batch",
    "Client": "client",
    "Mix": "mixes.mix",
    "MixedBatch": "mixes.mix",
    "Sampler": "samplers.sampler",
    "Server": "server",
    "TableHandle": "tables.table",
    "TableInfo": "tables.info",
    "VectorWriter": "writers.vector_writer",
    "View": "samplers.view",
    "Writer": "writers.writer",
    "connect": "client",
    "mix": "mixes.mix",
}

if not _TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        if name not in _MODULES_OF_CLIENTS:
            raise AttributeError(f"module 'shmreplay' has no attribute {name!r}")
        value: object = getattr(_import_module(f"shmreplay.clients.{_MODULES_OF_CLIENTS[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
