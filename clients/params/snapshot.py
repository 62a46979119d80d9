"""Snapshot: one version of a published tree, read in place."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.batches.structured import Structured
from shmreplay.clients.handles.unattached import refuse_pickle
from shmreplay.clients.params.layout import PARAMS, PUBLISHED, ParamsLayout
from shmreplay.clients.params.leaves import writable
from shmreplay.clients.samplers.view import View
from shmreplay.columns import structure
from shmreplay.columns.conversion import flatten


class Snapshot(Structured):
    """One whole version. A context manager; made by `Params.latest`.

    Its memory is not used for another version until it is released: at the end of a `with`, by `release()`, when it is
    collected as garbage, or when the client is closed. Until then, newer versions use other memory, as long as there
    is some.

    Attributes:
        version: int, its number, from 1 on.
        published_at: float, when it was published, in seconds since 1970.
    """

    _called = "snapshot"

    def __init__(self, view: View, layout: ParamsLayout) -> None:
        self._view = view
        self._layout = layout
        item = view[0]
        self.version = item.insert_number
        self.published_at = int(item.data[PUBLISHED]) / 1e9

    @property
    def _root(self) -> structure.Node:
        return self._layout.node

    @property
    def age_s(self) -> float:
        """Seconds since it was published, by the system's clock."""
        return max(0.0, time.time() - self.published_at)

    @property
    def data(self) -> Any:
        """The tree, of read-only arrays: the shared memory itself. Raises ShmReplayError after the release."""
        return self._layout.tree(self._view[0].data)

    def copy(self) -> Any:
        """A copy of the tree."""
        return structure.unflatten(self._layout.node, [array.copy() for array in self._arrays()])

    def copy_to(self, tree: Any) -> None:
        """Copies the version into the arrays or tensors of a tree of the same structure.

        Raises:
            SignatureMismatch: the tree has another structure.
            TypeError, ValueError: a leaf is not in host memory, read-only, or of another dtype or shape; the text names
                it, and nothing was written.
        """
        paths = structure.leaf_paths(self._layout.node)
        sources = self._arrays()
        targets = flatten(self._layout.node, tree, "copy_to")
        arrays = [
            writable(target, source, f"copy_to: {path!r}")
            for path, target, source in zip(paths, targets, sources, strict=True)
        ]
        for array, source in zip(arrays, sources, strict=True):
            np.copyto(array, source)

    def _arrays(self) -> list[NDArray[Any]]:
        arrays: list[Any] = flatten(self._layout.node, self.data, PARAMS)
        return arrays

    @property
    def is_released(self) -> bool:
        """Whether its memory has been given back."""
        return self._view.is_released

    def release(self) -> None:
        """Releases the memory. Idempotent. Arrays that are kept show whatever is published there next."""
        self._view.release()

    close = release

    def __enter__(self) -> Snapshot:
        self._view._check_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __reduce__(self) -> NoReturn:
        refuse_pickle(repr(self), "it leases memory to this process", "pass its copy(), or the Params it is from")

    def __repr__(self) -> str:
        return f"<Snapshot of version {self.version}{' released' if self.is_released else ''}>"
