"""Recorders: environments of gymnasium and of EnvPool that write their steps to a table by themselves.

Reading order: `spaces` (what a step is), `recorder` (one environment), `vector_recorder`, `envpool_recorder`.
"""

import importlib.util

if importlib.util.find_spec("gymnasium") is None:
    raise ImportError(
        "shmreplay.clients.gymnasium records gymnasium's environments, and gymnasium is not installed; "
        "install it: pip install 'shmreplay[gymnasium]'"
    )

from shmreplay.clients.gymnasium.envpool_recorder import EnvPoolRecorder
from shmreplay.clients.gymnasium.recorder import Recorder
from shmreplay.clients.gymnasium.spaces import signature, signature_of_spaces, text
from shmreplay.clients.gymnasium.vector_recorder import VectorRecorder

__all__ = ["EnvPoolRecorder", "Recorder", "VectorRecorder", "signature", "signature_of_spaces", "text"]
