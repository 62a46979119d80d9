"""All peers, and their environments."""

import dataclasses
import functools
import pathlib
import subprocess
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "build" / "peers"
# Makes glibc keep freed memory, so that the next batch causes no page faults. 32 MiB is the largest threshold allowed.
MEMORY_KEPT = {"MALLOC_TOP_PAD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


@dataclasses.dataclass(frozen=True)
class Peer:
    """One other way to do what shmreplay does.

    Attributes:
        name: its name, also that of its environment's folder.
        module: the module of its adapter.
        requirements: what pip installs into its environment, one list for each call of pip; empty: it uses our own.
        python: the Python version that its environment needs, such as "3.11".
        distribution: the distribution whose version is shown; None: it needs only Python and NumPy.
        builds: a module that its interpreter runs to complete the installation.
    """

    name: str
    module: str
    requirements: tuple[tuple[str, ...], ...] = ()
    python: str = ""
    distribution: str = ""
    builds: str = ""

    @property
    def interpreter(self) -> pathlib.Path:
        return ENVIRONMENTS / self.name / "bin" / "python" if self.requirements else pathlib.Path(sys.executable)

    @property
    def is_installed(self) -> bool:
        return self.version() is not None

    def version(self) -> str | None:
        """The version of its distribution; "" if it needs only NumPy; None if it is not installed."""
        if not self.requirements:
            return ""
        return _version(self.interpreter, self.distribution) if self.interpreter.exists() else None


@functools.cache
def _version(interpreter: pathlib.Path, distribution: str) -> str | None:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    done = subprocess.run([str(interpreter), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


PEERS = (
    Peer("cpprb", "bench.peers.cpprb_buffer", (("cpprb==11.0.0", "numpy<2"),), "3.11", "cpprb"),
    Peer(
        "reverb",
        "bench.peers.reverb_table",
        (("dm-reverb==0.14.0", "tensorflow-cpu==2.15.1", "numpy<2"),),
        "3.11",
        "dm-reverb",
    ),
    # torch comes first and alone, so that pip can take a CPU build, which it would not do while it resolves torchrl.
    Peer(
        "torchrl",
        "bench.peers.torchrl_buffer",
        (("torch==2.13.0",), ("torch==2.13.0", "torchrl==0.14.1", "setuptools", "pybind11", "ninja")),
        "3.11",
        "torchrl",
        "bench.peers.torchrl_extension",
    ),
    Peer(
        "sb3",
        "bench.peers.sb3_buffer",
        (("torch==2.13.0",), ("torch==2.13.0", "stable-baselines3==2.9.2")),
        "3.11",
        "stable-baselines3",
    ),
    Peer("queue", "bench.peers.queue_ring"),
    Peer("ring", "bench.peers.locked_ring"),
)


_asked_for = [peer.name for peer in PEERS]


def ask_for(names: Sequence[str]) -> None:
    """Limits the run to these peers."""
    _asked_for[:] = names


def asked_for() -> list[Peer]:
    return [peer for peer in PEERS if peer.name in _asked_for]


def versions() -> dict[str, str]:
    """The version of each peer in a run, or that it is not installed."""
    return {peer.name: ("not installed" if (v := peer.version()) is None else v or "NumPy's") for peer in asked_for()}
