"""On-policy: unrolls of 20 steps, each learned from once, oldest first.

    python examples/unrolls.py

A queue of 16 unrolls keeps actor and learner together: the actor waits for room, the learner for unrolls. Here the
actor is a thread; in another process it would call `sr.connect(server.address)`.
"""

import threading

import numpy as np

import shmreplay as sr

UNROLL, NUM_UNROLLS = 20, 100

STEP = {
    "observation": sr.ArraySpec((8,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "log_probability": sr.ArraySpec((), "float32"),
    "reward": sr.ArraySpec((), "float32"),
}


def act(client: sr.Client) -> None:
    """Writes 100 consecutive unrolls of one endless episode."""
    rng = np.random.default_rng(0)
    with client.table("unrolls").writer(history=UNROLL) as writer:
        for num_steps in range(1, NUM_UNROLLS * UNROLL + 1):
            observation = rng.normal(size=8).astype(np.float32)  # your environment and policy
            writer.append({"observation": observation, "action": 1, "log_probability": -0.7, "reward": 1.0})
            if num_steps % UNROLL == 0:
                writer.create_item(length=UNROLL)


def main() -> None:
    table = sr.Table.queue("unrolls", STEP, max_size=16, item_steps=UNROLL)
    with sr.Server(tables=[table]) as server, server.client() as client:
        actor = threading.Thread(target=act, args=(client,))
        actor.start()
        unrolls = client.table("unrolls")
        num_learned = 0
        while num_learned < NUM_UNROLLS:
            # Up to eight, or as many as there are. If the actor died, the call would raise RateLimitTimeout after 30 s.
            # Items drawn until then would be in the error's `.batch`, and nowhere else.
            batch = unrolls.sample(8, at_least=1, timeout_s=30)
            num_learned += len(batch)
            advantages = batch.data["reward"].sum(axis=1)  # your loss; columns are [B, 20, ...]
        actor.join()
        print(f"{num_learned} unrolls, the last of return {advantages[-1]:.0f}; {len(unrolls)} left in the queue")


if __name__ == "__main__":
    main()
