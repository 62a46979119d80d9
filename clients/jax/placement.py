"""Placements: how NumPy arrays become JAX arrays, and where these lie.

None of these JAX arrays ever changes. On the host they share the memory of the NumPy arrays, without a copy. Elsewhere
they are copies that may still be under way. In both cases JAX keeps a reference to the NumPy array as long as it reads
its memory. So Python does not free the memory, and no sampler writes to it, because samplers write only to arrays that
nobody refers to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from shmreplay.base.dtypes import is_added
from shmreplay.clients.batches.aligned import aligned_copy, is_aligned


class Placement(Protocol):
    """A place for batches.

    Attributes:
        transfer: how arrays get there, "dlpack" or "device_put".
    """

    transfer: str

    def place(self, arrays: Sequence[NDArray[Any]], batch_axes: Sequence[int]) -> list[jax.Array]:
        """Returns JAX arrays of the same values, in dtypes that JAX has. Nobody may write to `arrays` afterwards.

        Args:
            arrays: NumPy arrays. On the host, those aligned to 64 bytes are not copied.
            batch_axes: for each array, the number of the axis that counts the items.
        """


class OnHost:
    """The host's CPU, by DLPack."""

    transfer = "dlpack"

    def __init__(self, device: jax.Device) -> None:
        self._device = device

    def place(self, arrays: Sequence[NDArray[Any]], batch_axes: Sequence[int]) -> list[jax.Array]:
        """See `Placement.place`."""
        return [self._hand_over(_canonical(array)) for array in arrays]

    def _hand_over(self, array: NDArray[Any]) -> jax.Array:
        if is_added(array.dtype):  # NumPy does not export it by DLPack
            placed: jax.Array = jax.device_put(array, self._device)
            return placed
        if not (is_aligned(array) and array.flags.c_contiguous):
            array = aligned_copy(array)
        handed_over: jax.Array = jax.numpy.from_dlpack(array, copy=False)
        return handed_over


class OnDevice:
    """One device, by transfers that run while the caller goes on."""

    transfer = "device_put"

    def __init__(self, device: jax.Device) -> None:
        self._device = device

    def place(self, arrays: Sequence[NDArray[Any]], batch_axes: Sequence[int]) -> list[jax.Array]:
        """See `Placement.place`."""
        return list(jax.device_put([_canonical(array) for array in arrays], self._device))


class OverMesh:
    """The devices of a mesh, each with its part of the items."""

    transfer = "device_put"

    def __init__(self, mesh: Mesh, axis: str) -> None:
        self._mesh = mesh
        self._axis = axis

    def place(self, arrays: Sequence[NDArray[Any]], batch_axes: Sequence[int]) -> list[jax.Array]:
        """See `Placement.place`."""
        shardings = [self._sharding(batch_axis) for batch_axis in batch_axes]
        return list(jax.device_put([_canonical(array) for array in arrays], shardings))

    def _sharding(self, batch_axis: int) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec(*[None] * batch_axis, self._axis))


def placement_of(
    where: str, batch_size: int, device: jax.Device | str | None, mesh: Mesh | None, axis: str | None
) -> Placement:
    """The placement of these options: see `JaxSampler`.

    Raises:
        ValueError: there is no such device or axis, the items cannot be divided evenly over it, the mesh has devices
            of other processes, or device and mesh are both given.
        TypeError: an option has the wrong type.
    """
    if mesh is None:
        if axis is not None:
            raise ValueError(f"{where}: axis is {axis!r}, but there is no mesh; pass mesh= as well")
        found = _device(where, device)
        return OnHost(found) if found == jax.local_devices(backend="cpu")[0] else OnDevice(found)
    if device is not None:
        raise ValueError(f"{where}: device= and mesh= are both given; expected one of them")
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{where}: mesh is {mesh!r}; expected a jax.sharding.Mesh")
    return OverMesh(mesh, _axis(where, batch_size, mesh, axis))


def _device(where: str, device: jax.Device | str | None) -> jax.Device:
    if device is None:
        [default] = jax.numpy.zeros(()).devices()  # where JAX puts arrays by default
        return default
    if isinstance(device, jax.Device):
        return device
    if not isinstance(device, str):
        raise TypeError(
            f"{where}: device is {device!r}; expected a jax.Device, a name such as 'cpu' or 'gpu:1', or None"
        )
    platform, _, number = device.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(number or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        here = ", ".join(f"{found.platform}:{i}" for i, found in enumerate(jax.local_devices()))
        raise ValueError(f"{where}: device is {device!r}; there is no such device ({error}), only {here}") from None


def _axis(where: str, batch_size: int, mesh: Mesh, axis: str | None) -> str:
    names = [str(name) for name in mesh.axis_names]
    if axis is None and len(names) > 1:
        raise ValueError(
            f"{where}: the mesh has the axes {', '.join(names)}; expected axis=, the one to divide items over"
        )
    axis = names[0] if axis is None else axis
    if axis not in names:
        raise ValueError(f"{where}: axis is {axis!r}; the mesh has {', '.join(names)}")
    if batch_size % mesh.shape[axis] != 0:
        raise ValueError(
            f"{where}: batch_size is {batch_size}; expected a multiple of {mesh.shape[axis]}, the size of the mesh's "
            f"axis {axis!r}"
        )
    if mesh.is_multi_process:
        raise ValueError(
            f"{where}: the mesh has devices of other processes; expected a mesh of this process's own, with a sampler "
            "in each, and jax.make_array_from_process_local_data() for arrays over all of them"
        )
    return axis


def _canonical(array: NDArray[Any]) -> NDArray[Any]:
    """The array in a dtype that JAX has: without `jax_enable_x64`, numbers of 64 bits become numbers of 32 bits."""
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    return array if dtype == array.dtype else aligned_copy(array, dtype)
