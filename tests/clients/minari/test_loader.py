"""Episodes of data sets in a table: which go in, and what is refused."""

import logging
from typing import Any

import numpy as np
import pytest

minari = pytest.importorskip("minari", reason="minari is not installed")

import shmreplay as sr
from shmreplay.clients.minari import load, signature_of, table_spec
from tests.clients.minari.conftest import MakeDataset

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # of metadata that is not given


def test_chosen_episodes_go_in_with_their_final_observations(server: sr.Server, make_dataset: MakeDataset) -> None:
    dataset = make_dataset("mine/some-v0", 9)
    with server.client() as client:
        client.create_tables([table_spec(dataset, "chosen")])
        table = client.table("chosen")
        chosen = [dataset[5], dataset[2]]
        assert load(table, dataset, [5, 2]) == sum(map(len, chosen))
        batch = table.get(table.keys())
    places = np.concatenate([episode.observations["place"][1:] for episode in chosen])
    np.testing.assert_array_equal(batch.data["next_observation"]["place"], places)
    ended = np.concatenate([episode.terminations for episode in chosen])
    np.testing.assert_array_equal(batch.data["terminated"], ended)


def test_groups_of_episodes_are_as_all_at_once(
    server: sr.Server, make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmreplay.clients.minari.loader.ROWS", 40)
    dataset = make_dataset("mine/grouped-v0", 12)
    with server.client() as client:
        client.create_tables([table_spec(dataset, "grouped")])
        table = client.table("grouped")
        assert load(table, dataset) == dataset.total_steps
        rewards = table.get(table.keys()).data["reward"]
    np.testing.assert_array_equal(rewards, np.concatenate([episode.rewards for episode in dataset]))


def test_it_goes_past_the_rate_limiter_unless_it_is_to_count(server: sr.Server, make_dataset: MakeDataset) -> None:
    dataset = make_dataset("mine/limited-v0", 6)
    limiter = sr.rate_limiters.SampleToInsertRatio(1.0, 1, error_buffer=2)
    with server.client() as client:
        client.create_tables([table_spec(dataset, "limited", rate_limiter=limiter)])
        table = client.table("limited")
        load(table, dataset)
        assert (len(table), table.info().uncounted) == (dataset.total_steps, dataset.total_steps)
        with pytest.raises(sr.RateLimitTimeout):
            load(table, dataset, count=True, timeout_s=0)


def test_infos_are_named_and_left_out(
    server: sr.Server, make_dataset: MakeDataset, caplog: pytest.LogCaptureFixture, rng: np.random.Generator
) -> None:
    dataset = make_dataset("mine/told-v0", 1)
    episode = dataset[0]
    told = [type(episode)(**{**vars(episode), "infos": {"speed": np.zeros(len(episode) + 1)}})]

    class Told:
        observation_space, action_space = dataset.observation_space, dataset.action_space

        def iterate_episodes(self, chosen: Any) -> Any:
            return iter(told)

    with server.client() as client, caplog.at_level(logging.INFO, "shmreplay"):
        client.create_tables([table_spec(dataset, "told")])
        load(client.table("told"), Told())
    assert "the infos of the data set are not stored: speed" in caplog.text


def test_a_table_of_other_columns_says_which(server: sr.Server, make_dataset: MakeDataset) -> None:
    dataset = make_dataset("mine/other-v0", 2)
    signature = {**signature_of(dataset), "action": sr.ArraySpec((3,), "float32")}
    with server.client() as client:
        client.create_tables([sr.Table("other", signature, 100, item=sr.Transition())])
        table = client.table("other")
        with pytest.raises(sr.SignatureMismatch, match=r"column 'action': expected float32 \(\d+, 3\), got float32"):
            load(table, dataset)
        assert len(table) == 0


def test_rewards_of_a_float32_column_are_cast(server: sr.Server, make_dataset: MakeDataset) -> None:
    dataset = make_dataset("mine/single-v0", 2)
    signature = {**signature_of(dataset), "reward": sr.ArraySpec((), "float32", cast="same_kind")}
    assert signature_of(dataset)["reward"].dtype == np.float64
    with server.client() as client:
        client.create_tables([sr.Table("single", signature, 100, item=sr.Transition())])
        table = client.table("single")
        load(table, dataset)
        rewards = table.get(table.keys()).data["reward"]
    np.testing.assert_array_equal(rewards, np.concatenate([e.rewards for e in dataset]).astype(np.float32))
