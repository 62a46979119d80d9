"""python -m bench.gpu: all checks that need a GPU, as a table. Status 1 if a rule was not kept, 0 without a GPU."""

import argparse
import sys
from collections.abc import Iterator, Sequence

from bench import machine
from bench.gpu import copies, neighbours, registration
from bench.gpu.finding import Finding, page
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaUnavailable

MIB = 2**20


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        device = Driver.open().device(options.gpu)
    except CudaUnavailable as error:
        print(f"SKIPPED, nothing was measured. {error}")
        return 0
    with device:
        findings = list(run(device, options.mib * MIB, options.copy_mib * MIB))
    print(page(findings))
    print(", ".join(f"{name}: {value}" for name, value in machine.facts().items()))
    return 1 if any(finding.is_kept is False for finding in findings) else 0


def run(device: Device, register_bytes: int, copy_bytes: int) -> Iterator[Finding]:
    yield from registration.checks(device, register_bytes)
    yield from copies.checks(device, copy_bytes)
    yield from neighbours.checks(device, copy_bytes)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m bench.gpu", description="What a GPU does with batches from here.")
    p.add_argument("--gpu", type=int, default=0, metavar="N", help="which one (default: 0)")
    p.add_argument("--mib", type=int, default=8192, metavar="N", help="of memory to page-lock (default: 8192)")
    p.add_argument("--copy-mib", type=int, default=256, metavar="N", help="of one copy (default: 256)")
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
