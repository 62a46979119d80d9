"""A view's items as tensors on the shared memory itself."""

from __future__ import annotations

from typing import Any

from torch.utils.dlpack import from_dlpack

from shmreplay.clients.samplers.view import HOST, View
from shmreplay.clients.torch.tensors import as_tensor


def view_tensors(view: View) -> Any:
    """All items of a view together, in the structure and of the shapes of `view.data`.

    Where `view.is_contiguous` they are the shared memory itself, strided; else private copies. Torch knows no read-only
    tensors: whoever writes to these writes to everybody's steps. They keep the rows leased until they are gone, also
    after the view's release: so do not keep them long, and `clone` what you keep.

    Raises:
        ShmReplayError: the view was released.
        TypeError: torch or DLPack have no dtype of a column. In a table without a signature there are lists.
    """
    view._check_held()
    layout = view._layout
    return view._structured(layout.names, [_tensor(view._exported(i, HOST)) for i in range(len(layout.columns))])


def _tensor(exported: Any) -> Any:
    if isinstance(exported, list):
        return exported
    return from_dlpack(exported) if not hasattr(exported, "flags") else as_tensor(exported)
