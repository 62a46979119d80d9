"""python -m bench.gpu: all checks that need a GPU, as a table. Status 1 if a rule was not kept, 0 without a GPU."""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from bench import machine
from bench.gpu import batches, copies, neighbours, registration
from bench.gpu.finding import HEAD, Finding, Run
from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.errors import CudaUnavailable

MIB = 2**20
PARTS = ("registration", "copies", "neighbours", "batches")


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        device = open_device(options.gpu)
    except CudaUnavailable as error:
        print(f"SKIPPED, nothing was measured. {error}")
        return 0
    made = Run(machine.host(), [])
    print("\n".join(HEAD), flush=True)
    with device:
        for finding in (finding for part in options.only or PARTS for finding in checks(device, part, options)):
            made.findings.append(finding)
            print(finding.line, flush=True)  # printed at once, in case a later check fails
    print("", made.lines()[-1], sep="\n")
    if options.json is not None:
        options.json.write_text(made.to_json(), encoding="utf-8")
    return 1 if any(finding.is_kept is False for finding in made.findings) else 0


def checks(device: Device, part: str, options: argparse.Namespace) -> Iterator[Finding]:
    """The checks of a part. An error ends the part, but not the run, since time on a GPU may be expensive."""
    try:
        yield from checks_of(device, part, options)
    except Exception as error:  # noqa: BLE001  # it is in the report
        yield Finding(f"what is left of {part}", f"{type(error).__name__}: {error}", "it does not fail", False)


def checks_of(device: Device, part: str, options: argparse.Namespace) -> Iterator[Finding]:
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
