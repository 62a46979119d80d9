"""Worker: what each process of a storm uses, and which errors its calls may raise."""

import numpy as np

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.soak.ledger import Log, Numbers


class Worker:
    """`ident` is given to no other process of the storm."""

    def __init__(self, client: sr.Client, ident: int, log: Log, seed: int) -> None:
        self.client = client
        self.numbers = Numbers(ident)
        self.log = log
        self.rng = np.random.default_rng([seed, ident])

    def table(self, name: str) -> TableHandle:
        return self.client.table(name, seed=self.seed())

    def seed(self) -> int:
        return int(self.rng.integers(2**31))


def only_late(error: sr.ShmReplayError) -> None:
    """A call with a timeout may end by it: for want of admission, or while the lock's holder is stopped."""
    if not isinstance(error, sr.RateLimitTimeout) and "kept the arena's lock" not in str(error):
        raise error
