"""What tests of tables with shards have: such tables on one embedded server a module, checked shard by shard."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import shmreplay as sr
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import COLUMNS, client_of

MakeShards = Callable[..., ShardedTable]
_names = (f"s{i}" for i in itertools.count())


def shards_of(table: ShardedTable | TableHandle) -> list[TableHandle]:
    """A handle of each shard, to put items where a test wants them."""
    return [client_of(table).table(f"{table.name}~{number}") for number in range(table.spec.shards)]


@pytest.fixture
def make_shards(server: sr.Server) -> Iterator[MakeShards]:
    """Makes tables with shards; each shard is checked, and the table dropped, when the test is over."""
    made: list[ShardedTable] = []
    with server.client() as client:

        def make(max_size: int = 100, shards: int = 3, *, seed: Any = None, **options: Any) -> ShardedTable:
            options = {"max_streams": 24, "max_sessions": 16, "signature": COLUMNS, **options}
            table = sr.Table(next(_names), options.pop("signature"), max_size, shards=shards, **options)
            client.create_tables([table])
            made.append(cast(ShardedTable, client.table(table.name, seed)))
            return made[-1]

        yield make
        there = client.tables()
        for table in made:
            if table.name in there:
                faults = [shard._arena.check() for shard in shards_of(table)]
                client.drop_table(table.name)
                assert not any(faults), faults
        assert not {table.name for table in made} & set(client.tables())
