"""How long do an actor's inserts take while a checkpoint is saved? `python -m bench.checkpoint_latency [--items N]`.

One actor inserts steps of 397 bytes into a full table, first alone, then while checkpoints are saved one after the
other. Prints median, 99th percentile and longest insert of both, checkpoints saved and given up, and bytes per second.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.signature import signature
from bench.steps import SMALL
from shmreplay.clients.tables.table import TableHandle

FILL = 1000


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    rng = np.random.default_rng(1)
    table = sr.Table("bench", signature(SMALL), options.items, capacity_steps=options.items * 5 // 4)
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        sr.Server([table], checkpoint_dir=directory) as server,
        server.client() as client,
        server.client() as saver,
    ):
        handle = client.table("bench")
        rows = SMALL.stacked(FILL, rng)
        for _ in range(options.items * 3 // 2 // FILL):
            handle.insert_batch(rows)
        steps = SMALL.separate(256, rng)
        alone = latencies(handle, steps, lambda: False, options.inserts, options.pause)
        saved = Saved(saver)
        saved.start()
        during = latencies(handle, steps, lambda: saved.num_tried < options.checkpoints, options.inserts, options.pause)
        saved.stop()
    print(json.dumps({"items": options.items, "alone": alone, "during": during, **saved.report()}, indent=2))
    return 0


class Saved:
    """Saves checkpoints one after the other, on a thread."""

    def __init__(self, client: sr.Client) -> None:
        self._client = client
        self._thread = threading.Thread(target=self._save)
        self._stopped = threading.Event()
        self.num_tried = 0
        self._seconds: list[float] = []
        self._bytes = 0
        self._reasons: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _save(self) -> None:
        while not self._stopped.is_set():
            try:
                self._client.checkpoint()
                last = self._client.stats()["daemon"]["checkpoint"]
                self._seconds.append(last["seconds"])
                self._bytes += last["bytes"]
            except sr.CheckpointFailed as error:
                self._reasons.append(str(error))
            self.num_tried += 1

    def report(self) -> dict[str, Any]:
        rate = self._bytes / sum(self._seconds) / 1e6 if self._seconds else None
        return {"saved": len(self._seconds), "given_up": self._reasons, "megabytes_per_s": rate}


def latencies(
    table: TableHandle, steps: list[dict[str, Any]], goes_on: Callable[[], bool], at_least: int, pause_s: float
) -> dict[str, float]:
    """Inserts at least `at_least` times and until `goes_on` returns False. Returns figures in microseconds."""
    took: list[int] = []
    while len(took) < at_least or goes_on():
        step = steps[len(took) % len(steps)]
        start = time.perf_counter_ns()
        table.insert(step)
        took.append(time.perf_counter_ns() - start)
        if pause_s:
            time.sleep(pause_s)
    us = np.asarray(took) / 1000
    return {"inserts": len(us), "median_us": float(np.median(us)), "p99_us": float(np.percentile(us, 99)),
            "longest_us": float(us.max())}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m bench.checkpoint_latency", description="Inserts beside a checkpoint.")
    p.add_argument("--items", type=int, default=1_000_000, help="in the table (default: 1,000,000)")
    p.add_argument("--inserts", type=int, default=200_000, help="at least, alone and beside (default: 200,000)")
    p.add_argument("--checkpoints", type=int, default=3, help="to try (default: 3)")
    p.add_argument("--pause", type=float, default=0.0, metavar="S", help="between two inserts (default: none)")
    p.add_argument("--directory", help="where the checkpoints go (default: the temporary directory)")
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
