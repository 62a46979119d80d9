"""Steps with structure: a dict of observations and a named tuple of what the agent did, from 32 environments at once.

    python examples/nested.py

A batch has the same structure as the steps, and its arrays have a batch axis in front.
"""

from typing import NamedTuple

import numpy as np

import shmreplay as sr

NUM_ENVIRONMENTS = 32


class Decision(NamedTuple):
    """What the agent did, and how sure it was."""

    action: object
    log_probability: object


# A leaf is an ArraySpec, or anything else that has a shape and a dtype: here an array, elsewhere a gymnasium space.
TRANSITION = {
    "observation": {
        "camera": sr.ArraySpec((64, 64, 3), "uint8"),
        "joints": np.zeros(7, np.float32),
    },
    "decision": Decision(action=sr.ArraySpec((7,), "float32"), log_probability=sr.ArraySpec((), "float32")),
    # Most environments give float64 rewards, which this casts. By default only casts that lose nothing are allowed.
    "reward": sr.ArraySpec((), "float32", cast="same_kind"),
}


def main() -> None:
    table = sr.Table("transitions", TRANSITION, max_size=1_000)
    rng = np.random.default_rng(0)
    with sr.Server(tables=[table]) as server, server.client() as client:
        transitions = client.table("transitions")
        for _ in range(10):
            n = NUM_ENVIRONMENTS
            keys = transitions.insert_batch(
                {
                    "observation": {
                        "camera": rng.integers(256, size=(n, 64, 64, 3), dtype=np.uint8),
                        "joints": rng.normal(size=(n, 7)).astype(np.float32),
                    },
                    "decision": Decision(
                        action=np.zeros((n, 7), np.float32), log_probability=np.full(n, -0.5, np.float32)
                    ),
                    "reward": rng.normal(size=n),
                }
            )
        batch = transitions.sample(16)
        print(batch.data["observation"]["camera"].shape, batch.data["decision"].action.shape)
        print(f"{len(transitions)} items; the newest has key {keys[-1]}")
        try:
            transitions.insert({"observation": {"camera": np.zeros((64, 64), np.uint8)}})
        except sr.SignatureMismatch as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    main()
