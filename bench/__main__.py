"""python -m bench: runs the workloads and prints their answers. See README.md."""

import argparse
import os
import pathlib
import shlex
import sys
from collections.abc import Sequence

from bench import machine
from bench.answer import Answer
from bench.contender import Trial
from bench.cores import one_core
from bench.measure import measure
from bench.peers.catalogue import PEERS, ask_for, versions
from bench.report import Report, lines
from bench.simulation.study import Study, conclusions, line, study
from bench.size import FULL, LEAST_REPEATS, QUICK, SMOKE, Size
from bench.workload import Workload
from bench.workloads import all_workloads


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.add and options.json is None:
        parser().error("--add needs --json FILE")
    if options.cores:
        if options.add or options.only or options.repeats is not None or options.peers is not None:
            parser().error("--cores measures one thing; it goes with --json FILE alone")
        return many_cores(options.json)
    if options.repeats is not None:
        if options.repeats < LEAST_REPEATS:
            parser().error(
                f"--repeats is {options.repeats}; expected {LEAST_REPEATS} or more: a median of fewer says little"
            )
        options.size = options.size.repeated(options.repeats)
    chosen = [w for w in all_workloads() if w.is_asked_for(options.only)]
    if not chosen:
        names = ", ".join(w.name for w in all_workloads())
        print(f"no workload's name has {' or '.join(options.only)} in it; there are {names}", file=sys.stderr)
        return 2
    chosen = [w for w in chosen if w.name in options.only or w.fits(options.size)]
    if options.peers is not None:
        ask_for(options.peers)
    facts = {**machine.facts(), "load before": machine.load()}
    run_of = (command(options), options.note, options.size)
    report = Report(*run_of, facts, versions(), (), ())
    if options.add:
        report = Report.from_json(options.json.read_text(encoding="utf-8")).again(report)
    for workload in chosen:
        if (why := workload.why_not(machine.available_bytes())) is not None:
            report = report.without(why)
            print(f"left out: {why}", end="\n\n", flush=True)
        else:
            answer = run(workload, options.size)
            report = report.with_answer(answer, {"load after": machine.load()})
            print("\n".join(lines(answer)), end="\n\n", flush=True)
        if options.json is not None:
            options.json.write_text(report.to_json(), encoding="utf-8")  # so an error later loses no answer
    print(", ".join(f"{name}: {value}" for name, value in report.machine.items()))
    return 0


def many_cores(json: pathlib.Path | None) -> int:
    """Measures crowds on this machine's cores, beside the simulation that also says what larger machines would do."""
    for found in study(len(os.sched_getaffinity(0))):
        if isinstance(found, Study):
            print("\n".join(conclusions(found)))
            if json is not None:
                json.write_text(found.to_json(), encoding="utf-8")
        else:
            print(line(found), flush=True)
    return 0


def run(workload: Workload, size: Size) -> Answer:
    """Sets a workload up on all cores, and measures it: calls on one core, which the answer names; processes on all."""
    with workload.open(size) as rows:
        if any(isinstance(row, Trial) for row in rows):
            return measure(workload, size, rows)
        with one_core():
            return measure(workload, size, rows)


def command(options: argparse.Namespace) -> str:
    """The command that repeats this run."""
    size = [] if options.size.name == FULL.name else [f"--{options.size.name}"]
    if options.repeats is not None:
        size.append(f"--repeats={options.repeats}")
    peers = [] if options.peers is None else ["--peers", *options.peers]
    return shlex.join(["python", "-m", "bench", *size, *(f"--only={part}" for part in options.only), *peers])


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m bench", description="shmreplay beside its physical limits, in one run.")
    sizes = p.add_mutually_exclusive_group()
    sizes.add_argument("--quick", dest="size", action="store_const", const=QUICK, help="100,000 items, few repeats")
    sizes.add_argument("--smoke", dest="size", action="store_const", const=SMOKE, help="whether it runs; no times")
    p.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help=f"of each limit and peer, {LEAST_REPEATS} or more; trials no more than that",
    )
    p.add_argument(
        "--cores",
        action="store_true",
        help="writers and learners on all cores, beside a simulation of them; nothing else is measured",
    )
    p.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all numbers there")
    p.add_argument("--add", action="store_true", help="keep the answers of FILE that this run does not give anew")
    p.add_argument(
        "--only", action="append", default=[], metavar="PART", help="workloads with this in the name, or W1 and so on"
    )
    names = [peer.name for peer in PEERS]
    p.add_argument(
        "--peers", nargs="*", choices=names, metavar="NAME", help=f"only these beside ours: {', '.join(names)}"
    )
    p.add_argument("--note", default="", metavar="TEXT", help="kept in the JSON: what a reader should know of this run")
    p.set_defaults(size=FULL)
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
