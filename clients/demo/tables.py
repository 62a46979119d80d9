"""The two tables that actors and learner share."""

from __future__ import annotations

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.demo.q_network import QNetwork

N_STEP = 3  # rewards in a target
REPLAY, WEIGHTS = "replay", "weights"

# Row t: an observation, the action taken there, and its outcome. The next observation is not stored with it: it is the
# observation of row t + 1. The final observation of an episode is one more row, without other columns.
STEP = {
    "observation": sr.ArraySpec((4,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


def demo_tables(num_actors: int) -> list[sr.Table]:
    """Experience from the actors to the learner, and weights back."""
    return [
        sr.Table(
            REPLAY,
            STEP,
            max_size=50_000,
            # n steps and the observation after them. Items overlap and share steps, so there are hardly more steps
            # than items. The default capacity is for items that share no steps: 4 times as many.
            item_steps=N_STEP + 1,
            capacity_steps=60_000,
            sampler=sr.selectors.Prioritized(priority_exponent=0.6),
            remover=sr.selectors.Fifo(),
            # An item is sampled 8 times on average: actors wait for the learner, or the learner for actors, to keep
            # that.
            rate_limiter=sr.rate_limiters.SampleToInsertRatio(
                samples_per_insert=8, min_size_to_sample=1_000, error_buffer=1_000
            ),
            max_streams=num_actors,
        ),
        # The newest version of the network, for all actors.
        params.table(WEIGHTS, QNetwork.signature(), max_publishers=1),
    ]
