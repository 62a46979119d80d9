"""python -m tests.soak: a storm for as long as one likes."""

import argparse
import dataclasses
import json
import pathlib
import secrets
import sys
import tempfile

from tests.soak.storm import Storm, daemon_for


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    p.add_argument("--minutes", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=None, help="of an earlier storm; default: a new one, printed")
    p.add_argument("--processes", type=int, default=40, help="at work at a time")
    p.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write what it did and saw there")
    options = p.parse_args()
    seed = secrets.randbits(31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, daemon_for(pathlib.Path(name)) as daemon:
        tally = Storm(daemon, pathlib.Path(name), seed, options.processes).blow(60 * options.minutes)
    print(tally)
    if options.json is not None:
        options.json.write_text(json.dumps(dataclasses.asdict(tally), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
