"""JAX: a table's batches as JAX arrays, on the host, on an accelerator, or over a mesh of them.

Reading order: `placement` (how NumPy arrays become JAX arrays), `batch`, `sampler`.
"""

import importlib.util

if importlib.util.find_spec("jax") is None:
    raise ImportError(
        "shmreplay.clients.jax makes JAX arrays of a table's batches, and JAX is not installed; "
        "install it: pip install 'shmreplay[jax]'"
    )

from shmreplay.clients.jax.batch import JaxBatch
from shmreplay.clients.jax.sampler import JaxSampler

__all__ = ["JaxBatch", "JaxSampler"]
