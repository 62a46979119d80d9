"""PeerProcess: a peer that works in its own process and interpreter; and how to start all peers of a task."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from bench.contender import Absent, Contender, Gone, Trial
from bench.peers.catalogue import ENVIRONMENTS, MEMORY_KEPT, ROOT, Peer, asked_for
from bench.peers.task import Task

END_TIMEOUT_S = 30.0
LONGEST_S = 5.0  # the longest that a trial of a peer is watched


class PeerProcess:
    """A peer with one task. All of its work is in another process.

    Attributes:
        name: what it does, in its own words.
        slice_s, least_calls: as in `Contender`, as the peer says.
        can: whether it can do the task.
        left_out: why it cannot; None: it has no such call.
    """

    def __init__(self, peer: Peer, task: Task, environment: dict[str, str]) -> None:
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        self._log = ENVIRONMENTS / f"{peer.name}.log"
        command = [str(peer.interpreter), "-m", "bench.peers.child", peer.module]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | environment
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._peer, self._task, self._interrupted = peer, task, 0
        said = self._ask(task.to_json())
        self.can: bool = "left_out" not in said
        self.left_out: str | None = said.get("left_out")
        self.name: str = said.get("name", "")
        self.slice_s: float | None = said.get("slice_s")
        self.least_calls: int = said.get("least_calls", 1)

    def call(self, n: int) -> int:
        """Nanoseconds of n calls, on one core if the peer has no background threads."""
        return int(self._run({"run": n, "alone": self.slice_s is None}))

    def watch(self, seconds: float) -> dict[str, float]:
        """The metrics of its processes over this many seconds."""
        return dict(self._run({"run": seconds}))

    def interrupted(self) -> int:
        """How often it was taken off its core so far, by its last answer."""
        return self._interrupted

    def _run(self, question: dict[str, Any]) -> Any:
        answer = self._ask(json.dumps(question))
        self._interrupted = answer["interrupted"]
        return answer["value"]

    def close(self) -> None:
        """Ends the process; its own processes and servers end with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, line: str) -> Any:
        """Sends a request and returns the answer. Raises Gone, with its last output, if it ends instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self.close()
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            where = self._log.relative_to(ROOT)
            raise Gone(f"{self._peer.name} ended in the middle of {self._task.work} ({where}): {last}")
        return json.loads(answer)


Beside = list[Contender | Trial | Absent]


@contextlib.contextmanager
def peers(task: Task, *, trial: bool = False, both_mallocs: bool = False) -> Iterator[Beside]:
    """Prepares all peers that can do the task. Those that cannot are `Absent`, with the reason.

    Args:
        trial: whether the work is watched for a time, instead of called.
        both_mallocs: also measures each peer with glibc's default malloc, where fresh arrays cost page faults.
    """
    settings = {"": MEMORY_KEPT, ", malloc's defaults": {}} if both_mallocs else {"": MEMORY_KEPT}
    with contextlib.ExitStack() as stack:
        beside: Beside = []
        for peer in asked_for():  # one after the other: each is full before the next one takes memory
            version = peer.version()
            if version is None:
                beside.append(Absent(f"{peer.name} is not installed: python -m bench.peers.install {peer.name}"))
                continue
            for how, environment in settings.items():
                try:
                    process = PeerProcess(peer, task, environment)
                except Gone as why:
                    beside.append(Absent(str(why)))
                    continue
                stack.callback(process.close)
                if not process.can:
                    if process.left_out is not None:
                        beside.append(Absent(f"{peer.name} {process.left_out}"))
                    break
                name = " ".join(part for part in (peer.name, version, process.name) if part) + how
                if trial:
                    beside.append(Trial(name, "peer", process.watch, LONGEST_S))
                else:
                    slices = (process.slice_s, process.least_calls)
                    beside.append(Contender(name, "peer", process.call, *slices, process.interrupted))
        yield beside
