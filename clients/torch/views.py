"""Makes tensors of a view's items that share the arena's memory."""

from __future__ import annotations

from typing import Any

from torch.utils.dlpack import from_dlpack

from shmreplay.clients.samplers.view import HOST, View
from shmreplay.clients.torch.tensors import as_tensor


def view_tensors(view: View) -> Any:
    """Returns all items of a view as tensors, in the structure and shapes of `view.data`.

    If `view.is_contiguous`, they are the shared memory itself, strided; otherwise private copies. Torch has no
    read-only tensors: writing to these tensors changes the steps for all processes. They keep the rows leased as long
    as they exist, even after the view's release. So do not keep them long, and `clone` what you keep. In a table
    without a signature the result has lists instead of tensors.

    Raises:
        ShmReplayError: the view was released.
        TypeError: torch or DLPack has no dtype for a column.
    """
    view._check_held()
    layout = view._layout
    return view._structured(layout.names, [_tensor(view._exported(i, HOST)) for i in range(len(layout.columns))])


def _tensor(exported: Any) -> Any:
    if isinstance(exported, list):
        return exported
    return from_dlpack(exported) if not hasattr(exported, "flags") else as_tensor(exported)
