"""What these tests have: four devices of the CPU.

They run in a process of their own, which tests/test_apart.py starts: JAX has threads, and warns of every fork
from then on, of which the other tests have many.
"""

import jax

jax.config.update("jax_num_cpu_devices", 4)  # before JAX looks for devices
