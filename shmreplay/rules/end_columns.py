"""The columns `terminated` and `truncated`, which end episodes, wherever they are in the signature."""

from __future__ import annotations

import warnings

import numpy as np

from shmreplay.columns.leaves import EXPECTED_PLAIN, Leaf
from shmreplay.columns.signature import Signature
from shmreplay.rules.item_rules import Rule
from shmreplay.rules.windows import Window

END_COLUMNS = ("terminated", "truncated")
_OTHER_NAMES = ("done", "dones")  # names in other libraries


def is_end_column(leaf: Leaf) -> bool:
    """Whether a column ends episodes."""
    return _last_name(leaf) in END_COLUMNS


def check_end_columns(signature: Signature, where: str) -> None:
    """Raises ValueError if an end column is not a plain flag, since windows would then ignore the ends of episodes."""
    for leaf in filter(is_end_column, signature.leaves):
        text = f"{where}, column {leaf.path!r}: is {leaf}, and says where episodes end"
        if leaf.flags != 0:
            raise ValueError(f"{text}; expected {EXPECTED_PLAIN}")
        if leaf.spec.shape != () or leaf.spec.dtype != np.bool_:
            raise ValueError(f"{text}; declare ArraySpec((), 'bool'), or give it another name if it is something else")


def warn_if_ends_are_unknown(signature: Signature, rule: Rule | None, where: str, stacklevel: int) -> None:
    """Warns if a window's only end column is a `done`, which ends nothing; `stacklevel` counts from the caller."""
    if not isinstance(rule, Window) or rule.across_episodes or any(map(is_end_column, signature.leaves)):
        return
    for leaf in signature.leaves:
        if _last_name(leaf) in _OTHER_NAMES:
            warnings.warn(
                f"{where}: column {leaf.path!r} ends no episode, only those called 'terminated' and 'truncated' do; "
                "rename it, or windows go on until end_episode()",
                stacklevel=stacklevel + 1,
            )
            return


def _last_name(leaf: Leaf) -> str:
    return leaf.path.rpartition("/")[2]
