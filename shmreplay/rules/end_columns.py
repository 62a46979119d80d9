"""The columns `terminated` and `truncated`, which end episodes: those at the top of the signature, or those named."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np

from shmreplay.columns import structure
from shmreplay.columns.leaves import EXPECTED_PLAIN, Leaf
from shmreplay.columns.signature import Signature
from shmreplay.rules.item_rules import Rule
from shmreplay.rules.windows import Window

END_COLUMNS = ("terminated", "truncated")
_OTHER_NAMES = ("done", "dones")  # names in other libraries


def read_ends(ends: object, signature: Signature, where: str) -> tuple[str, ...]:
    """Returns the paths that a table declares as its `ends`.

    Raises:
        TypeError: they are not paths.
        ValueError: one is no column, is not called `terminated` or `truncated`, or there are two of one name.
    """
    if isinstance(ends, str) or not isinstance(ends, Iterable):
        raise TypeError(f"{where}: ends is {ends!r}; expected paths of columns, such as ('agent/terminated',), or None")
    paths = tuple(ends)
    names = [path.rpartition("/")[2] if isinstance(path, str) else path for path in paths]
    for path, name in zip(paths, names, strict=True):
        if name not in END_COLUMNS:
            raise ValueError(f"{where}: ends has {path!r}; expected paths that end in 'terminated' or 'truncated'")
        if not isinstance(signature.part(path), structure.LeafNode):
            columns = ", ".join(leaf.path for leaf in signature.leaves)
            raise ValueError(f"{where}: ends has {path!r}, which is no column; the signature has {columns}")
        if names.count(name) > 1:
            raise ValueError(
                f"{where}: ends is {paths}; expected one {name!r}: give the steps a column of their own that says when "
                "the episode is over for all"
            )
    return paths


def end_leaves(signature: Signature, ends: tuple[str, ...] | None) -> list[Leaf]:
    """The columns that end episodes. `ends`: their paths; None: `terminated` and `truncated` at the top."""
    return [leaf for leaf in signature.leaves if leaf.path in (END_COLUMNS if ends is None else ends)]


def check_end_columns(signature: Signature, ends: tuple[str, ...] | None, where: str) -> None:
    """Raises ValueError if an end column is not a plain flag, since windows would then ignore the ends of episodes."""
    for leaf in end_leaves(signature, ends):
        text = f"{where}, column {leaf.path!r}: is {leaf}, and says where episodes end"
        if leaf.flags != 0:
            raise ValueError(f"{text}; expected {EXPECTED_PLAIN}")
        if leaf.spec.shape != () or leaf.spec.dtype != np.bool_:
            raise ValueError(f"{text}; declare ArraySpec((), 'bool'), or give it another name if it is something else")


def warn_if_ends_are_unknown(
    signature: Signature, ends: tuple[str, ...] | None, rule: Rule | None, where: str, stacklevel: int
) -> None:
    """Warns if a window goes on where a column seems to say that an episode ends, but ends none.

    It is called `done`, or is a `terminated` or `truncated` below the top. `stacklevel` counts from the caller.
    """
    if not isinstance(rule, Window) or rule.across_episodes or ends is not None or end_leaves(signature, ends):
        return
    for leaf in signature.leaves:
        name = leaf.path.rpartition("/")[2]
        if name in _OTHER_NAMES:
            remedy = "only those called 'terminated' and 'truncated' do; rename it"
        elif name in END_COLUMNS:
            remedy = f"only those at the top of the signature do; declare Table(ends=({leaf.path!r},)), or ends=()"
        else:
            continue
        warnings.warn(
            f"{where}: column {leaf.path!r} ends no episode, {remedy}, or windows go on until end_episode()",
            stacklevel=stacklevel + 1,
        )
        return
