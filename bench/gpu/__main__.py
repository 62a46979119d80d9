"""python -m bench.gpu: all checks that need a GPU, as a table. Status 1 if a rule was not kept, 0 without a GPU."""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from bench import machine
from bench.gpu import batches, copies, neighbours, registration
from bench.gpu.finding import Finding, Run
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaUnavailable

MIB = 2**20
PARTS = ("registration", "copies", "neighbours", "batches")


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        device = Driver.open().device(options.gpu)
    except CudaUnavailable as error:
        print(f"SKIPPED, nothing was measured. {error}")
        return 0
    with device:
        findings = [finding for part in options.only or PARTS for finding in checks(device, part, options)]
    made = Run(machine.facts(), findings)
    print("\n".join(made.lines()))
    if options.json is not None:
        options.json.write_text(made.to_json(), encoding="utf-8")
    return 1 if any(finding.is_kept is False for finding in findings) else 0


def checks(device: Device, part: str, options: argparse.Namespace) -> Iterator[Finding]:
    if part == "registration":
        yield from registration.checks(device, options.mib * MIB)
    elif part == "copies":
        yield from copies.checks(device, options.copy_mib * MIB)
    elif part == "neighbours":
        yield from neighbours.checks(device, options.copy_mib * MIB, options.mib * MIB)
    else:
        yield from batches.checks(device, options.items)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m bench.gpu", description="What a GPU does with batches from here.")
    p.add_argument("--gpu", type=int, default=0, metavar="N", help="which one (default: 0)")
    p.add_argument("--mib", type=int, default=8192, metavar="N", help="of memory to page-lock (default: 8192)")
    p.add_argument("--copy-mib", type=int, default=256, metavar="N", help="of one copy (default: 256)")
    p.add_argument("--items", type=int, default=20_000, metavar="N", help="in the table of frames (default: 20000)")
    p.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write it there: bench/GPU.json is on the page")
    p.add_argument("--only", nargs="+", choices=PARTS, help="these parts of it")
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
