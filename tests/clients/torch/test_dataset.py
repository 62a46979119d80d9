"""ReplayDataset: batches through torch's DataLoader, whose workers attach by themselves."""

import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

import shmreplay as sr  # noqa: E402
from shmreplay.clients.torch import ReplayDataset, TorchBatch  # noqa: E402
from tests.clients.torch.tensors import numbers_of  # noqa: E402
from tests.support.tables import TableMaker, filled, steps  # noqa: E402

# The machine may have fewer cores than a test has workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def load(dataset: ReplayDataset, num_workers: int, start: str = "fork") -> list[TorchBatch]:
    """All batches of one iteration, in the order in which they come."""
    context = start if num_workers else None
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context)
    return list(loader)


def draws(batches: list[TorchBatch]) -> list[list[int]]:
    return [numbers_of(batch).tolist() for batch in batches]


@pytest.mark.parametrize(("num_workers", "start"), [(0, ""), (4, "fork"), (1, "spawn")])
@pytest.mark.one_quick
def test_a_loader_gets_whole_batches_from_as_many_workers_as_it_wants(
    make_table: TableMaker, num_workers: int, start: str
) -> None:
    table = filled(make_table)
    batches = load(ReplayDataset(table, 8, num_batches=10), num_workers, start)
    assert [len(batch) for batch in batches] == [8] * 10
    found = draws(batches)
    assert len({str(batch) for batch in found}) == 10, "two workers draw alike"
    for batch in batches:
        assert table.update_priorities(batch.keys_host, np.ones(8)) == 8
        assert batch.weights(0.4).shape == (8,)
    assert table.info().samples >= 80


def test_equal_seeds_and_epochs_draw_alike_in_workers_too(make_table: TableMaker) -> None:
    table = filled(make_table)
    dataset = ReplayDataset(table, 8, num_batches=6, seed=3, count=False)
    for num_workers in (0, 2):
        dataset.set_epoch(0)
        first = draws(load(dataset, num_workers))
        dataset.set_epoch(1)
        second = draws(load(dataset, num_workers))
        dataset.set_epoch(0)
        assert draws(load(dataset, num_workers)) == first
        assert first != second
    assert draws(load(dataset, 0)) != first, "an iteration that follows draws otherwise"


def test_disjoint_workers_have_no_item_in_common(make_table: TableMaker) -> None:
    batches = draws(load(ReplayDataset(filled(make_table), 20, num_batches=2, disjoint=True), 2))
    assert len(set(batches[0]) | set(batches[1])) == 40


def test_a_worker_in_this_process_attaches_and_detaches(make_table: TableMaker) -> None:
    table = filled(make_table)
    sessions = len(table._arena.sessions())
    iterator = iter(ReplayDataset(table, 8))
    assert len(next(iterator)) == 8
    del iterator
    assert len(table._arena.sessions()) == sessions


def test_it_can_be_pickled_and_is_small(make_table: TableMaker) -> None:
    data = pickle.dumps(ReplayDataset(filled(make_table), 8, num_batches=2, seed=1))
    assert len(data) < 1000
    assert len(load(pickle.loads(data), 0)) == 2


@pytest.mark.parametrize("num_workers", [0, 3])
def test_workers_share_the_number_of_batches(make_table: TableMaker, num_workers: int) -> None:
    table = filled(make_table)
    for num_batches in (0, 1, 7):
        dataset = ReplayDataset(table, 2, num_batches=num_batches)
        shares = [dataset._share(worker, max(num_workers, 1)) for worker in range(max(num_workers, 1))]
        assert sum(share or 0 for share in shares) == num_batches
    assert len(load(ReplayDataset(table, 2, num_batches=5), num_workers)) == 5


def test_what_ends_a_sampler_reaches_the_loader(make_table: TableMaker) -> None:
    table = make_table()
    with pytest.raises(sr.RateLimitTimeout, match=f"table {table.name!r}: sample not admitted within 0.05 s"):
        load(ReplayDataset(table, 2, timeout_s=0.05), 0)
    table.insert_batch(steps(range(3)))
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'colums'"):
        load(ReplayDataset(table, 2, colums=["n"]), 0)


@pytest.mark.long
def test_a_worker_hands_out_consumed_items_before_its_timeout(make_table: TableMaker) -> None:
    queue = make_table.queue(8)
    queue.insert_batch(steps(range(7)))
    dataset = ReplayDataset(queue, 4, timeout_s=0.05)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    assert draws([next(batches), next(batches)]) == [[0, 1, 2, 3], [4, 5, 6]]
    with pytest.raises(sr.RateLimitTimeout, match=r"sample not admitted within 0\.05 s"):
        next(batches)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0; expected 1 to"),
        ({"num_batches": -1}, ValueError, "num_batches is -1; expected an integer in 0"),
        ({"rank": 1}, ValueError, r"rank is 1 and world_size is 1; expected a rank below world_size"),
    ],
)
def test_wrong_options_are_refused_at_once(
    make_table: TableMaker, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    table = filled(make_table, 3)
    with pytest.raises(error, match=f"table {table.name!r}: {text}"):
        ReplayDataset(table, **{"batch_size": 2, **options})
    with pytest.raises(ValueError, match="epoch is -1; expected an integer in 0"):
        ReplayDataset(table, 2).set_epoch(-1)
