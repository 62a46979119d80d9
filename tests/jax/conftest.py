"""What these tests have: four devices of the CPU, and tables on one embedded server a module.

They run in a process of their own, which tests/system/test_apart.py starts: JAX has threads, and warns of every fork
from then on, of which the other tests have many.
"""

import jax

from tests.tables import make_table, server

__all__ = ["make_table", "server"]

jax.config.update("jax_num_cpu_devices", 4)  # before JAX looks for devices
