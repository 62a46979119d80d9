"""Two actors and a learner, each a process of its own. They share nothing but the server's address.

    python examples/processes.py

The rate limiter keeps them together: on average each transition is sampled four times.
"""

import multiprocessing

import numpy as np

import shmreplay as sr

TRANSITION = {
    "observation": sr.ArraySpec((8,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "next_observation": sr.ArraySpec((8,), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}


def act(address: str, seed: int) -> None:
    """Inserts for ever. One step is one item here, so no writer is needed."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=8).astype(np.float32)
    with sr.connect(address) as client:
        table = client.table("transitions")
        while True:
            next_observation = rng.normal(size=8).astype(np.float32)  # your environment
            transition = {
                "observation": observation,
                "action": int(rng.integers(4)),
                "reward": 1.0,
                "next_observation": next_observation,
                "terminated": bool(rng.random() < 0.01),
            }
            table.insert(transition)  # waits while the learner lags by more than error_buffer
            observation = next_observation


def learn(client: sr.Client) -> None:
    """Samples 200 batches, and sends each item's TD error back as its priority."""
    table = client.table("transitions")
    for _ in range(200):
        batch = table.sample(64, timeout_s=30)  # waits while the actors lag; raises RateLimitTimeout
        td_errors = np.linalg.norm(batch.data["observation"], axis=1)  # of your network
        loss = (batch.weights(beta=0.4) * td_errors**2).mean()  # the weights belong into the loss alone
        table.update_priorities(batch.keys, np.abs(td_errors))  # in the priority they would undo the prioritisation
    info = table.info()
    print(f"last loss {loss:.3f}; {info.inserts} inserts, {info.samples} samples, {info.size} items")


def main() -> None:
    limiter = sr.rate_limiters.SampleToInsertRatio(samples_per_insert=4, min_size_to_sample=500, error_buffer=500)
    table = sr.Table(
        "transitions", TRANSITION, max_size=10_000, sampler=sr.selectors.Prioritized(0.6), rate_limiter=limiter
    )
    context = multiprocessing.get_context("spawn")
    with sr.Server(tables=[table]) as server, server.client() as client:
        actors = [context.Process(target=act, args=(server.address, seed), daemon=True) for seed in range(2)]
        for actor in actors:
            actor.start()
        learn(client)
        # Killing an actor is harmless at any moment, also inside a call: the items that it inserted stay.
        for actor in actors:
            actor.kill()
            actor.join()


if __name__ == "__main__":
    main()
