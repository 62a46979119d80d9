"""The whole demo: starts a server and the crew, shows the progress, and kills an actor on the way."""

from __future__ import annotations

import os

from rich.console import Console

import shmreplay as sr
from shmreplay.clients.demo.crew import Crew
from shmreplay.clients.demo.curve import curve_lines, save_curve
from shmreplay.clients.demo.interrupts import Interrupts
from shmreplay.clients.demo.progress import NUM_EPISODES, Progress
from shmreplay.clients.demo.tables import REPLAY, demo_tables

SOLVED = 475.0  # the mean return at which CartPole-v1 counts as solved
TICK_S = 0.1  # how long a Ctrl-C or the display may wait
KILL_AFTER = 4_000  # inserts: the learner has begun by then


def train(num_actors: int, seconds: float, seed: int, goal: float, plot: str | None) -> int:
    """Trains until the goal is reached.

    Args:
        num_actors: processes that play.
        seconds: after which it ends, also if the goal is not reached.
        seed: of all random numbers.
        goal: the mean return of the last episodes.
        plot: path of an image of the learning curve.

    Returns:
        0 if it is reached, 1 if the time is up before, 130 after a Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

    Raises:
        ShmReplayError: an actor or the learner died, other than the one that is killed on purpose.
        OSError, ValueError: the image cannot be written.
    """
    if plot is not None:
        save_curve(plot, [])  # a file that cannot be written fails now, not after the training
    console = Console(highlight=False, soft_wrap=True)
    progress = Progress(f"CartPole-v1, {num_actors} actors, 1 learner", console, goal)
    # Contexts end in reverse order: closing the server closes the tables, which ends the crew.
    with Interrupts() as interrupts, Crew() as crew, sr.Server(demo_tables(num_actors)) as server:
        crew.start(server.address, num_actors, seed)
        console.print(", ".join(f"{name} is process {pid}" for name, pid in crew.pids.items()))
        with server.client() as client, progress:
            replay, is_killed = client.table(REPLAY), False
            while not (progress.has_reached_goal or interrupts.exit_code or progress.elapsed_s >= seconds):
                progress.add(crew.receive(TICK_S))
                progress.show(info := replay.info())
                if not is_killed and info.inserts >= KILL_AFTER:
                    is_killed = True
                    steps = info.inserts // num_actors
                    for line in replace_an_actor(crew, replay, server.address, num_actors, seed, steps):
                        console.print(line)
            progress.show(replay.info(), is_last=True)
    return tell_end(progress, console, goal, plot, interrupts.exit_code)


def replace_an_actor(
    crew: Crew, replay: sr.TableHandle, address: str, num_actors: int, seed: int, num_steps: int
) -> list[str]:
    """Kills an actor, as a crash or the kernel would, and starts another one. Returns what to say about it."""
    killed = crew.kill("actor 0")
    kept = replay.info().size
    started = crew.add_actor(address, num_actors, num_actors, seed, num_steps)
    return [
        f"killed actor 0 (process {killed}) with SIGKILL, on purpose: the table keeps its {kept:,} items, also those "
        "of that actor, and the others go on",
        f"actor {num_actors} is process {started}, in its place",
    ]


def tell_end(progress: Progress, console: Console, goal: float, plot: str | None, interrupt: int) -> int:
    """Prints the learning curve, the result, and what to do next. Returns the exit code."""
    is_reached = progress.has_reached_goal
    for line in curve_lines(progress.all_returns, console.encoding):
        console.print(line, markup=False)
    if plot is not None:
        save_curve(plot, progress.all_returns)
        console.print(f"the curve is in {plot}", markup=False)
    done = "solved" if goal >= SOLVED else "reached"
    word = "interrupted" if interrupt else done if is_reached else f"not {done}"
    bar = f"CartPole-v1 counts as solved at {SOLVED:g}"
    if goal != SOLVED:
        bar = f"the goal was {goal:g}; {bar}"
    console.print(
        f"{word}: mean return {progress.mean_return:.1f} of the last {NUM_EPISODES} episodes ({bar}) after "
        f"{progress.elapsed_s:.1f} s and {len(progress.all_returns):,} episodes"
    )
    if interrupt:
        return interrupt
    console.print(next_steps(), markup=False)
    return 0 if is_reached else 1


def next_steps() -> str:
    """What to do after the demo."""
    lines = [
        f"the code of this demo, to copy from:   {os.path.dirname(__file__)}",
        "tables that outlive your scripts:      shmreplayd --web 127.0.0.1:9470    then open http://127.0.0.1:9470",
        "watch them in another terminal:        shmreplay top",
        "how to describe your own steps:        python -m pydoc shmreplay.Table",
    ]
    return "\n".join(["next:", *(f"  {line}" for line in lines)])
