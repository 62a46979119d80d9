"""python -m bench.reliability: counts survived deaths and damage. The promises are in docs/reliability.md.

It runs the crash tests and the bit flips of build/native (`make native` builds them) and a storm
(`python -m tests.soak`), and collects the figures that they print. Each of them fails if a promise is broken.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from bench import machine

CRASHES = ("crash_test", "crash_streams_test", "crash_values_test", "checkpoint_test")
DEATHS = re.compile(r"(\d+) operations, (\d+) deaths at (\d+) named points, (\d+) in recovery; ([\w. ]*)")
FLIPS = re.compile(r"\[seed (\d+)\] (\d+) flips, (\d+) raised")


def run(command: Sequence[str], **environment: str) -> str:
    """Returns the command's output. If the command fails, shows the output and raises CalledProcessError."""
    print(" ".join([*(f"{name}={value}" for name, value in environment.items()), *command]), flush=True)
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout)
    done.check_returncode()
    return done.stdout


def kill_points(native: pathlib.Path) -> dict[str, Any]:
    """SIGKILL at every named point of every operation."""
    found = [DEATHS.search(run([str(native / name)])) for name in CRASHES]
    totals = [match for match in found if match is not None]
    return {
        "operations": sum(int(match[1]) for match in totals),
        "deaths": sum(int(match[2]) for match in totals),
        "deaths in the recovery of another": sum(int(match[4]) for match in totals),
        "named points": sorted({point for match in totals for point in match[5].split() if point != "ok"}),
    }


def flips(native: pathlib.Path, count: int) -> dict[str, Any]:
    """One byte of a live arena at a time."""
    match = FLIPS.search(run([str(native / "flips_test")], SHMREPLAY_FLIPS=str(count)))
    assert match is not None
    return {"seed": int(match[1]), "flips": int(match[2]), "raised": int(match[3]), "crashes or hangs": 0}


def storm(minutes: float, processes: int) -> Any:
    """The figures that `tests.soak` prints."""
    with tempfile.TemporaryDirectory() as folder:
        tally = pathlib.Path(folder, "tally.json")
        size = ["--minutes", str(minutes), "--processes", str(processes)]
        run([sys.executable, "-m", "tests.soak", *size, "--json", str(tally)])
        return json.loads(tally.read_text("utf-8"))


def main(arguments: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__)
    p.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures there")
    p.add_argument(
        "--native", type=pathlib.Path, default=pathlib.Path("build/native"), help="where the tests were built"
    )
    p.add_argument("--flips", type=int, default=4000)
    p.add_argument("--minutes", type=float, default=1.0, help="of the storm")
    p.add_argument("--processes", type=int, default=40, help="of the storm, at a time")
    options = p.parse_args(arguments)
    figures = {
        "machine": machine.facts(),
        "load before": machine.load(),
        "kill points": kill_points(options.native),
        "flips": flips(options.native, options.flips),
        "storm": storm(options.minutes, options.processes),
    }
    print(json.dumps(figures, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
