"""Epochs: every iteration has the epoch that was promised, whatever its workers are and in whichever order one asks."""

import itertools
import os
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from shmreplay.clients.torch import ReplayDataset  # noqa: E402
from shmreplay.clients.torch import epochs as epochs_module  # noqa: E402
from shmreplay.clients.torch.epochs import MAX_EPOCH, Epochs  # noqa: E402
from tests.support.tables import TableMaker, filled  # noqa: E402

# The machine may have fewer cores than a test has workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

Draws = list[list[int]]


def loader_of(dataset: ReplayDataset, start: str, is_persistent: bool) -> Any:
    workers: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": start} if start else {}
    return DataLoader(dataset, batch_size=None, persistent_workers=is_persistent, **workers)


def draws(loader: Any) -> Draws:
    return [batch.keys_host.tolist() for batch in loader]


@pytest.mark.parametrize(
    ("start", "is_persistent"),
    [
        ("fork", True),
        ("fork", False),
        ("", False),
        pytest.param("spawn", True, marks=pytest.mark.long),
    ],
)
def test_an_iteration_has_the_epoch_that_was_set_or_the_next(
    make_table: TableMaker, start: str, is_persistent: bool
) -> None:
    """Equal epochs draw alike, different ones differently; the loader was made before all of it."""
    dataset = ReplayDataset(filled(make_table, 100), 4, num_batches=4, seed=3, count=False)
    loader = loader_of(dataset, start, is_persistent)
    found: list[tuple[int, Draws]] = []
    following = 0
    for set_to in (None, None, 5, None, 0, 1, 1, None):
        if set_to is not None:
            dataset.set_epoch(set_to)
            following = set_to
        found.append((following, draws(loader)))
        following += 1
    for (epoch, drawn), (other, others) in itertools.combinations(found, 2):
        assert (epoch == other) == (drawn == others), (epoch, other)
    for _ in loader:  # left after its first batch, while other workers may not have begun
        break
    assert draws(loader) == draws_of(dataset, loader, 4)
    for _ in loader:
        break
    dataset.set_epoch(0)
    assert draws(loader) == found[0][1]


def draws_of(dataset: ReplayDataset, loader: Any, epoch: int) -> Draws:
    dataset.set_epoch(epoch)
    return draws(loader)


def test_the_same_loader_seeded_anew_goes_on(make_table: TableMaker) -> None:
    """Then workers of two iterations have the same seed of torch's."""
    dataset = ReplayDataset(filled(make_table, 100), 4, num_batches=4, seed=3, count=False)
    loader = loader_of(dataset, "fork", False)
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        found.append(draws(loader))
    assert found[0] != found[1]


def test_options_are_refused_after_the_workers_have_been_made(make_table: TableMaker) -> None:
    dataset: Any = ReplayDataset(filled(make_table, 100), 4, num_batches=4)
    for name in ("batch_size", "num_batches", "seed", "timeout_s", "epoch"):
        with pytest.raises(
            AttributeError,
            match=rf"^{name} of a ReplayDataset is fixed, workers that run would not hear of it; make another",
        ):
            setattr(dataset, name, 1)
    dataset.note = "its user's own"
    assert dataset.note == "its user's own"


class Worker:
    """A worker of a loader as `Epochs` sees it, in this process: what was forked or spawned, and what torch says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: Epochs, number: int, seed: int) -> None:
        self._patch = monkeypatch
        self._info = SimpleNamespace(id=number, seed=seed + number)
        self._epochs = object.__new__(Epochs)
        vars(self._epochs).update(vars(of))  # the words are shared, all else is a copy
        self._epochs._process, self._epochs._iterations = os.getpid(), 0

    def begin(self) -> int:
        with self._patch.context() as patch:
            patch.setattr(epochs_module, "get_worker_info", lambda: self._info)
            return self._epochs.begin()


@pytest.fixture
def workers_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    seeds = itertools.count(100, 10)

    def make(epochs: Epochs, num: int = 2) -> list[Worker]:
        seed = next(seeds)
        return [Worker(monkeypatch, epochs, number, seed) for number in range(num)]

    return make


def test_a_worker_that_comes_late_has_the_epoch_of_its_iteration(workers_of: Any) -> None:
    epochs = Epochs()
    one, two = workers_of(epochs)
    assert one.begin() == 0
    epochs.set(7)
    assert two.begin() == 0  # its iteration began before that
    assert one.begin() == two.begin() == 7
    assert one.begin() == 8
    epochs.set(3)
    assert two.begin() == 8  # a persistent one
    assert [one.begin(), two.begin()] == [3, 3]
    one, two = workers_of(epochs)
    epochs.set(20)
    assert [two.begin(), one.begin()] == [4, 4]  # made before the call, whichever comes first
    assert [two.begin(), one.begin()] == [20, 20]


def test_an_iteration_that_some_workers_never_began_is_counted_once(workers_of: Any) -> None:
    epochs = Epochs()
    for epoch, (first, second) in enumerate([(0, 1), (1, 0), (0, 1)]):
        workers = workers_of(epochs)
        assert workers[first].begin() == epoch
        workers = workers_of(epochs)
        assert workers[second].begin() == workers[first].begin() == epoch + 1
        epochs.set(epoch + 1)
    assert epochs.begin() == 3
    late = workers_of(epochs)[0]
    epochs.set(9)
    assert [epochs.begin(), late.begin(), epochs.begin()] == [9, 3, 10]  # nobody waits for the late one


def test_many_workers_and_the_largest_epoch(workers_of: Any) -> None:
    epochs = Epochs()
    epochs.set(MAX_EPOCH - 1)
    for expected in (MAX_EPOCH - 1, MAX_EPOCH, MAX_EPOCH):
        assert {worker.begin() for worker in workers_of(epochs, 300)} == {expected}
    for epoch in range(3000):  # more calls than a word tells apart
        epochs.set(epoch)
    assert epochs.begin() == 2999


def test_a_copy_counts_on_by_itself() -> None:
    epochs = Epochs()
    epochs.set(4)
    assert [epochs.begin(), epochs.begin()] == [4, 5]
    copy = pickle.loads(pickle.dumps(epochs))
    assert [copy.begin(), copy.begin(), epochs.begin()] == [6, 7, 6]
    epochs.set(1)
    assert pickle.loads(pickle.dumps(epochs)).begin() == 1


def test_epochs_are_integers_in_a_range(make_table: TableMaker) -> None:
    dataset = ReplayDataset(filled(make_table, 3), 2)
    for wrong in (-1, MAX_EPOCH + 1):
        with pytest.raises(ValueError, match=rf"epoch is {wrong}; expected an integer in 0\.\."):
            dataset.set_epoch(wrong)
    dataset.set_epoch(np.int64(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="epoch is 'a'"):
        dataset.set_epoch("a")  # type: ignore[arg-type]
