"""Several processes and one buffer: actors that are killed, a learner that begins anew, samples per insert."""

import signal

import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import shmreplay as sr
from tests.support.daemons import Run, Script

RATIO, BATCH, NUM_BATCHES = 4.0, 32, 1500

# What every process does first. A script of its own each, as users have them: nothing comes from this module.
BUFFER = f"""
import sys
import numpy as np
from gymnasium import spaces
import shmreplay as sr
from shmreplay.clients.sb3 import ReplayBuffer

observations, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float64)

def buffer_of(num_envs):
    limiter = sr.rate_limiters.SampleToInsertRatio({RATIO}, 100, error_buffer=400)
    return ReplayBuffer(2000, observations, actions, "cpu", num_envs, address=sys.argv[1], table="shared",
                        rate_limiter=limiter)
"""

# Adds steps of two environments until it is killed; the limiter makes it wait.
ACTOR = f"""{BUFFER}
rng = np.random.default_rng(int(sys.argv[2]))
buffer = buffer_of(2)
row = rng.uniform(-1, 1, (2, 3))
while True:
    following = rng.uniform(-1, 1, (2, 3))
    over = rng.random(2) < 0.2
    infos = [{{"TimeLimit.truncated": True}} if over[i] and rng.random() < 0.5 else {{}} for i in range(2)]
    buffer.add(row, following, rng.uniform(-1, 1, (2, 2)), rng.normal(size=2), over, infos)
    row = np.where(over[:, None], rng.uniform(-1, 1, (2, 3)), following)
"""

# Draws batches, and prints how many of their values do not fit the spaces.
LEARNER = f"""{BUFFER}
buffer = buffer_of(1)
wrong = 0
for _ in range({NUM_BATCHES}):
    samples = buffer.sample({BATCH})
    values = (samples.observations, samples.actions, samples.next_observations)
    wrong += sum(int((value.abs() > 1).sum()) for value in values)
buffer.close()
print(wrong)
"""


def kill(script: Script) -> None:
    script.process.kill()
    assert script.finish()[0] == -signal.SIGKILL


@pytest.mark.crash
@pytest.mark.long
def test_actors_are_killed_and_the_learner_begins_anew_and_the_ratio_holds(server: sr.Server, run_script: Run) -> None:
    actors = [run_script(ACTOR, server.address, str(seed)) for seed in range(3)]
    for actor in actors[:2]:  # two learners, one after the other
        assert run_script(LEARNER, server.address).finish() == (0, "0\n", "")
        kill(actor)
    kill(actors[2])
    with server.client() as client:
        info = client.table("shared").info()
        client.drop_tables(["shared"])
    assert info.samples == 2 * NUM_BATCHES * BATCH
    # Within the limiter's bounds, whoever died: inserts wait at the upper one.
    assert info.min_diff <= info.difference <= info.max_diff
    assert abs(info.inserts * RATIO / info.samples - 1) < 0.01
