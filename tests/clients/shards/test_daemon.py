"""Tables with shards and the daemon: created once, adopted, saved, restored, dropped as one."""

import pathlib

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from tests.clients.shards.conftest import shards_of
from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.daemons import table as spec_of

SHARDS = ["replay~0", "replay~1", "replay~2"]


def rows(*ns: int) -> dict[str, object]:
    return {"x": np.repeat(np.array(ns, np.float32), 3).reshape(-1, 3), "n": np.array(ns)}


def facts(table: ShardedTable | TableHandle) -> list[object]:
    batch = table.get(table.keys())
    return [batch.keys.tolist(), batch.priorities.tolist(), batch.data["n"].tolist(), table.info().inserts]


def test_the_same_table_is_created_once_and_another_of_the_name_refused(daemon: DaemonProcess) -> None:
    with sr.connect(daemon.socket) as client:
        client.create_tables([spec_of(shards=3)])
        client.create_tables([spec_of(shards=3), spec_of("other")])
        assert sorted(client.tables()) == ["other", "replay"]
        assert sorted(client.stats()["arenas"]) == ["other", *SHARDS]
        for wanted, text in ((4, "shards: is 3, asked for 4"), (1, "shards: is 3, asked for 1")):
            with pytest.raises(ValueError, match=f"table 'replay' exists with other specs: {text}"):
                client.create_tables([spec_of(shards=wanted)])
        with pytest.raises(ValueError, match="max_size: is 1000, asked for 99;"):
            client.create_tables([spec_of(max_size=99, shards=3)])
        with pytest.raises(ValueError, match="shards: is 1, asked for 2"):
            client.create_tables([spec_of("other", shards=2)])
        client.drop_table("replay")
        assert sorted(client.stats()["arenas"]) == ["other"]
        client.create_tables([spec_of(shards=2)])
        client.drop_tables(["other", "replay"])
        assert client.tables() == {}


def test_what_is_done_to_a_whole_table_is_refused_for_the_name_of_a_shard(daemon: DaemonProcess) -> None:
    with sr.connect(daemon.socket) as client:
        client.create_tables([spec_of(shards=3)])
        with pytest.raises(ValueError, match="drop_tables: 'replay~1' is one shard of table 'replay'"):
            client.drop_table("replay~1")
        with pytest.raises(ValueError, match="set_rate_limiter: 'replay~1' is one shard of table 'replay'"):
            client.set_rate_limiter("replay~1", sr.rate_limiters.MinSize(4))
        assert client.tables()["replay"]["spec"] == spec_of(shards=3)


def test_the_daemon_is_killed_and_the_next_one_takes_all_shards_over(daemon: DaemonProcess) -> None:
    with sr.connect(daemon.socket) as client:
        client.create_tables([spec_of(shards=3, sampler=sr.selectors.Prioritized(1.0))])
        table = client.table("replay")
        for number, shard in enumerate(shards_of(table)):
            shard.insert_batch(rows(*range(number, 9)), np.arange(9.0 - number))
        before = facts(table)
        daemon.kill()
        assert len(table.sample(64)) == 64
        assert table.update_priorities(table.keys(), np.ones(24)) == 24
        daemon.start()
        assert facts(client.table("replay"))[0] == before[0]
        assert client.tables()["replay"]["spec"] == spec_of(shards=3, sampler=sr.selectors.Prioritized(1.0))
        client.reset("replay")
        assert len(table) == 0


def test_a_checkpoint_brings_every_shard_back(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> None:
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path))
    spec = spec_of(shards=3, sampler=sr.selectors.Prioritized(0.5), rate_limiter=sr.rate_limiters.MinSize(6))
    with sr.connect(daemon.socket) as client:
        client.create_tables([spec])
        table = client.table("replay")
        for number, shard in enumerate(shards_of(table)):
            shard.insert_batch(rows(*range(number, 9)), np.arange(9.0 - number))
        before, path = facts(table), client.checkpoint()
        client.drop_table("replay")
        with pytest.raises(ValueError, match="shards: is 3, asked for 2"):
            client.restore(path, [spec_of(shards=2, sampler=spec.sampler)])
        found = client.restore(path, [spec])
        assert found["tables"] == ["replay"]
        assert found["notes"] == []
        again = client.table("replay")
        assert facts(again) == before
        assert again.spec == spec
        assert set(again.sample(256).keys.tolist()) <= set(before[0])  # type: ignore[call-overload]
        assert again.update_priorities(again.keys(), np.full(24, 2.0)) == 24
        with pytest.raises(ValueError, match="table 'replay' exists already"):
            client.restore(path)
        client.drop_table("replay")
        wider = spec_of(shards=3, sampler=spec.sampler, rate_limiter=sr.rate_limiters.MinSize(9))
        assert client.restore(path, [wider], limiters="config")["notes"] != []
        assert [info.min_size_to_sample for info in client.table("replay").shard_infos()] == [3, 3, 3]
