"""A data set goes through a table and comes out as it was."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("minari", reason="minari is not installed")

from gymnasium import spaces

import shmreplay as sr
from shmreplay.clients.minari import load, save, table_spec
from tests.clients.minari.conftest import ACTION, OBSERVATION, MakeDataset, assert_equal_episodes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # of metadata that is not given


def filled(server: sr.Server, dataset: Any, name: str, **options: Any) -> Any:
    client = server.client()
    client.create_tables([table_spec(dataset, name, chunk_steps=16, **options)])
    table = client.table(name)
    assert load(table, dataset) == len(table) == dataset.total_steps
    return table


@pytest.mark.parametrize("num_steps", [1, 3])
def test_a_data_set_comes_back_as_it_was(server: sr.Server, make_dataset: MakeDataset, num_steps: int) -> None:
    """Nested spaces, and episodes that terminate, that are cut off, and that end by neither flag."""
    dataset = make_dataset("mine/there-v0")
    table = filled(server, dataset, f"steps-{num_steps}", item=sr.NStep(num_steps))
    saved = save(table, "mine/back-v0", observation_space=OBSERVATION, action_space=ACTION)
    assert (saved.observation_space, saved.action_space) == (dataset.observation_space, dataset.action_space)
    assert len(saved) == len(dataset) == 20
    for ours, theirs in zip(saved, dataset, strict=True):
        assert ours.id == theirs.id
        assert_equal_episodes(ours, theirs)


def test_without_spaces_it_has_those_of_the_columns(server: sr.Server, make_dataset: MakeDataset) -> None:
    table = filled(server, make_dataset("mine/few-v0", 2), "few")
    saved = save(table, "mine/boxes-v0")
    assert saved.action_space == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert saved.observation_space["image"] == spaces.Box(0, 255, (8, 8, 3), np.uint8)
    assert isinstance(saved.observation_space["flags"], spaces.Tuple)


def test_metadata_go_along(server: sr.Server, make_dataset: MakeDataset) -> None:
    table = filled(server, make_dataset("mine/told-v0", 2), "told")
    saved = save(table, "mine/by-v0", author="somebody", description="two episodes")
    assert (saved.storage.metadata["author"], saved.storage.metadata["description"]) == ({"somebody"}, "two episodes")


def test_an_environment_names_itself_and_its_spaces(server: sr.Server, make_dataset: MakeDataset) -> None:
    signature = {
        "observation": sr.ArraySpec((4,), "float32"),
        "action": sr.ArraySpec((), "int64"),
        "reward": sr.ArraySpec((), "float32"),
        "terminated": sr.ArraySpec((), "bool"),
        "truncated": sr.ArraySpec((), "bool"),
    }
    with server.client() as client:
        client.create_tables([sr.Table("pole", signature, 10, item=sr.Transition())])
        table = client.table("pole")
        row = {"observation": np.zeros(4, np.float32), "action": 1, "reward": 1.0, "truncated": False}
        with table.writer() as writer:
            writer.append({**row, "terminated": True})
            writer.end_episode({"observation": np.ones(4, np.float32)})
        with pytest.raises(ValueError, match="env is 'Nowhere-v0': Environment `Nowhere` doesn't exist"):
            save(table, "mine/pole-v0", env="Nowhere-v0")
        saved = save(table, "mine/pole-v0", env="CartPole-v1")  # nothing was left of the first one
    assert saved.env_spec.id == "CartPole-v1"
    assert isinstance(saved.action_space, spaces.Discrete)


def test_a_table_without_an_episode_is_no_data_set(server: sr.Server, make_dataset: MakeDataset) -> None:
    dataset = make_dataset("mine/one-v0", 1)
    with server.client() as client:
        client.create_tables([table_spec(dataset, "empty")])
        with pytest.raises(
            sr.ShmReplayError, match="table 'empty': it holds no whole episode to save as 'mine/none-v0'"
        ):
            save(client.table("empty"), "mine/none-v0")
