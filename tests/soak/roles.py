"""The roles of a storm: each process has one, and does it for ever."""

import logging
import os
import pathlib
import signal
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import shmreplay as sr
from tests.soak import actors, keepers, learners, queueing, savers
from tests.soak.ledger import Log
from tests.soak.process import GETS_ON_S
from tests.soak.worker import Worker

ROLES: dict[str, Callable[[Worker], NoReturn]] = {
    "keep": keepers.keep,
    "produce": queueing.produce,
    "consume": queueing.consume,
    "act": actors.act,
    "learn": learners.learn,
    "store": keepers.store,
    "unroll": actors.unroll,
    "revise": learners.revise,
    "act in many": actors.act_in_many,
    "learn ahead": learners.learn_ahead,
    "extend": actors.extend,
    "learn mixed": learners.learn_mixed,
    "save": savers.save,
}


def run(role: str, client: sr.Client | str, ident: int, path: pathlib.Path, seed: int) -> NoReturn:
    """In the forked process: works until a signal ends it. Whatever it raises goes into a file beside its log."""
    log = Log(path)
    signal.signal(signal.SIGTERM, _end)
    # In a storm many are gone by then, and many are stopped.
    warnings.filterwarnings("ignore", "table .*: update_(priorities|data) hit none", UserWarning)
    logging.getLogger("shmreplay").setLevel(logging.ERROR)
    try:
        if isinstance(client, str):
            client = sr.connect(client, timeout_s=GETS_ON_S)
        ROLES[role](Worker(client, ident, log, seed))
    except SystemExit:
        os._exit(0)
    except BaseException:  # noqa: BLE001  # told to the storm, which fails with it
        path.with_suffix(".failed").write_text(f"{role} {ident}\n{traceback.format_exc()}")
        os._exit(1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit
