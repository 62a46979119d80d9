"""Weights from a learner to its actors: actors read the newest version of a tree of arrays in shared memory.

    client.create_tables([params.table("policy", tree)])
    policy = params.Params(client.table("policy"))
    policy.publish(tree)                                    # the learner
    with policy.latest(min_version=2) as snapshot: ...      # actors

Reading order: `params`, `layout`, `snapshot`, `leaves`.
"""

from shmreplay.clients.params.params import Params, table
from shmreplay.clients.params.snapshot import Snapshot

__all__ = ["Params", "Snapshot", "table"]
