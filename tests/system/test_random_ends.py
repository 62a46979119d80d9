"""Processes that end at random moments of everything: their exit code is 0."""

import os

from tests.support.daemons import Run
from tests.support.rounds import rounds

ENDS = int(os.environ.get("SHMREPLAY_ENDS", rounds(20, 300)))
BLOCK = 20  # ends of one program; each has a seed of its own

# Forks children, each of which begins daemon threads that do everything, leaves samplers, and ends after a random time
# as any interpreter does.
PROGRAM = """
import collections, os, random, select, signal, sys, threading, time
import numpy as np
import shmreplay as sr

WAIT_S = 60.0
x = sr.ArraySpec((4,), "float32")
options = {"max_streams": 64, "max_sessions": 64}
server = sr.Server([
    sr.Table("full", {"x": x}, 1000, sampler=sr.selectors.Prioritized(1.0), **options),
    sr.Table("written", {"x": x}, 500, item_steps=1, **options),
    sr.Table("inserted", {"x": x}, 500, **options),
    sr.Table("empty", {"x": x}, 10, **options),
])
with server.client() as client:
    client.table("full").insert_batch({"x": np.zeros((200, 4), np.float32)})

def table(name):
    return sr.connect(server.address).table(name)

def leave_a_sampler(rng):
    last = rng.randrange(5)
    for i, _ in enumerate(table("full").sampler(32, prefetch=rng.choice([1, 3]))):
        if i == last:
            break

def leave_a_mix(rng):
    next(sr.mix([(table("full"), 2), (table("full"), 3)]).sampler(prefetch=2))

def wait_in_a_sampler(rng):
    next(table("empty").sampler(4, prefetch=2))

def sample(rng):
    full = table("full")
    while True:
        full.sample(8)

def insert(rng):
    while True:
        inserted = table("inserted")
        for _ in range(rng.randrange(20)):
            inserted.insert({"x": np.zeros(4, np.float32)})
            inserted.insert_batch({"x": np.zeros((3, 4), np.float32)})

def look(rng):
    full = table("full")
    while True:
        with full.view(4) as view:
            view[0].data

def write(rng):
    while True:
        with table("written").vector_writer(3) as writer:
            for _ in range(rng.randrange(10)):
                writer.append({"x": np.zeros((3, 4), np.float32)})
                writer.create_items(length=1)

WORK = [leave_a_sampler, leave_a_mix, wait_in_a_sampler, sample, insert, look, write]

def begin(rng):
    for _ in range(rng.randrange(1, 6)):
        work = rng.choice(WORK), random.Random(rng.random())
        threading.Thread(target=work[0], args=work[1:], daemon=True).start()
    for _ in range(rng.randrange(3)):
        leave_a_sampler(rng)
    time.sleep(rng.random() * 0.05)  # the random moment

codes, rng = collections.Counter(), random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    seed = rng.random()
    if (pid := os.fork()) == 0:
        begin(random.Random(seed))
        sys.exit(0)
    pidfd = os.pidfd_open(pid)
    if not select.select([pidfd], [], [], WAIT_S)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(pidfd)
    codes[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])] += 1
server.close()
print(dict(codes))
"""


def test_a_process_that_ends_at_any_moment_of_everything_has_the_exit_code_0(run_script: Run, seed: int) -> None:
    for block in range(-(-ENDS // BLOCK)):
        assert run_script(PROGRAM, str(seed + block), str(BLOCK)).finish() == (0, f"{{0: {BLOCK}}}\n", "")
