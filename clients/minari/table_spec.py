"""table_spec: a table that a data set of Minari fits into."""

from __future__ import annotations

from typing import Any

from minari import MinariDataset

from shmreplay import Table, Transition
from shmreplay.clients.gymnasium.spaces import signature_of_spaces
from shmreplay.columns.specs import ArraySpec

SPARE_STEPS = 1024  # chunks are not quite full where one call's rows end and those of the next begin


def signature_of(dataset: MinariDataset) -> dict[str, Any]:
    """The columns of a data set's steps: `observation`, `action`, `reward`, `terminated` and `truncated`.

    They are those of `shmreplay.clients.gymnasium.signature_of_spaces`, but rewards have the dtype in which they are
    stored, which is float64 mostly.

    Raises:
        TypeError: a space has no fixed size or no single structure, such as Sequence or OneOf.
        ValueError: the data set has no episode.
    """
    if len(dataset) == 0:
        raise ValueError(f"data set {dataset.id!r} has no episode; expected at least one")
    signature = signature_of_spaces(dataset.observation_space, dataset.action_space)
    reward = dataset[int(dataset.episode_indices[0])].rewards
    return {**signature, "reward": ArraySpec((), reward.dtype, cast="same_kind")}


def table_spec(dataset: MinariDataset, name: str, **options: Any) -> Table:
    """A table with room for a data set: its items are transitions.

    Args:
        dataset: of `minari.load_dataset`.
        name: of the table.
        **options: of `shmreplay.Table`, in the place of these: `item=sr.Transition()`, `max_size=` the steps of the
            data set, and `capacity_steps=` as many as its rows need, a final observation for each episode included.

    Raises:
        TypeError, ValueError: as `signature_of`, and as `Table`.
    """
    num_steps = int(dataset.total_steps)
    chosen = {"item": Transition(), "capacity_steps": num_steps + len(dataset) + SPARE_STEPS, **options}
    return Table(name, signature_of(dataset), chosen.pop("max_size", num_steps), **chosen)
