"""The whole demo: starts a server and the crew, and shows the progress until CartPole is solved."""

from __future__ import annotations

from rich.console import Console

import shmreplay as sr
from shmreplay.clients.demo.crew import Crew
from shmreplay.clients.demo.interrupts import Interrupts
from shmreplay.clients.demo.progress import GOAL, NUM_EPISODES, Progress
from shmreplay.clients.demo.tables import REPLAY, demo_tables

TICK_S = 0.1  # how long a Ctrl-C or the display may wait


def train(num_actors: int, seconds: float, seed: int) -> int:
    """Trains until the goal is reached.

    Returns:
        0 if it is reached, 1 if the time is up before, 130 after a Ctrl-C.

    Raises:
        ShmReplayError: an actor or the learner died.
    """
    console = Console(highlight=False, soft_wrap=True)
    progress = Progress(f"CartPole-v1, {num_actors} actors, 1 learner", console)
    # Contexts end in reverse order: closing the server closes the tables, which ends the crew.
    with Interrupts() as interrupts, Crew() as crew, sr.Server(demo_tables(num_actors)) as server:
        crew.start(server.address, num_actors, seed)
        console.print(", ".join(f"{name} is process {pid}" for name, pid in crew.pids.items()))
        with server.client() as client, progress:
            replay = client.table(REPLAY)
            while not (progress.is_solved or interrupts.exit_code or progress.elapsed_s >= seconds):
                progress.add(crew.receive(TICK_S))
                progress.show(replay.info())
            progress.show(replay.info(), is_last=True)
        result = (
            f"mean return {progress.mean_return:.1f} of the last {NUM_EPISODES} episodes (the bar is {GOAL:g}) after "
            f"{progress.elapsed_s:.1f} s and {progress.num_episodes:,} episodes"
        )
    if interrupts.exit_code:
        console.print(f"interrupted: {result}")
        return interrupts.exit_code
    console.print(f"{'solved' if progress.is_solved else 'not solved'}: {result}")
    return 0 if progress.is_solved else 1
