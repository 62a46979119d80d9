"""python -m bench.attach_once ADDRESS INSERTS: what attaching costs a process; for workloads/attach.py.

Prints JSON: nanoseconds for connecting and attaching to table "bench", bytes of private memory and of page tables that
attaching added, and bytes of page tables after INSERTS inserts.
"""

import json
import pathlib
import sys
import time
from collections.abc import Sequence

import numpy as np

import shmreplay as sr
from bench.steps import LAYOUTS

LAYOUT = "4kB"


def main(arguments: Sequence[str]) -> int:
    address, inserts = arguments[0], int(arguments[1])
    steps = LAYOUTS[LAYOUT].separate(16, np.random.default_rng(1))
    memory()  # the first reading itself takes memory
    private, tables = memory()
    start = time.monotonic_ns()
    client = sr.connect(address)
    table = client.table("bench")
    took = time.monotonic_ns() - start
    with_it = memory()
    for i in range(inserts):
        table.insert(steps[i % len(steps)])
    wrote = memory()
    client.close()
    print(
        json.dumps(
            {
                "attach": took,
                "private bytes": with_it[0] - private,
                "page tables": with_it[1] - tables,
                "page tables after writing": wrote[1] - tables,
            }
        )
    )
    return 0


def memory() -> tuple[int, int]:
    """Bytes of private memory, and of page tables, of this process."""
    private = 0
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            private += int(line.split()[1]) * 1024
    for line in pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmPTE:"):
            return private, int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status says nothing of page tables")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
