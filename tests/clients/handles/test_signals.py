"""A signal during the work of a call, not its wait, ends the call, and the error carries what was done."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, check

N = 5_000_000  # far more than is done when the signal comes
SIGNATURE = {"n": np.int64(0)}


class Stopped(Exception):
    """What the handler raises; as any error that ends a call it gets what the call has done."""

    keys: np.ndarray
    batch: sr.Batch


StopWhen = Callable[[Callable[[], bool]], None]


@pytest.fixture
def stop_when() -> Iterator[StopWhen]:
    """Raises Stopped in the main thread soon after the condition has come to hold."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(condition: Callable[[], bool]) -> None:
        def handler(number: int, frame: FrameType | None) -> None:
            if condition():
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise Stopped

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_ends_a_large_insert_half_way_and_its_error_has_the_keys(
    make_table: TableMaker, stop_when: StopWhen
) -> None:
    table = make_table(100, signature=SIGNATURE)
    stop_when(lambda: table.info().inserts > 0)
    with pytest.raises(Stopped) as error:
        table.insert_batch({"n": np.arange(N)})
    assert 0 < len(error.value.keys) == table.info().inserts < N
    assert table.keys().tolist() == error.value.keys[-100:].tolist()
    assert table.get(table.keys()).data["n"].tolist() == list(range(table.info().inserts - 100, table.info().inserts))


def test_a_signal_ends_a_large_sample_half_way_and_its_error_has_the_batch(
    make_table: TableMaker, stop_when: StopWhen
) -> None:
    table = make_table(100, signature=SIGNATURE)
    table.insert_batch({"n": np.arange(100)})
    stop_when(lambda: table.info().samples > 0)
    with pytest.raises(Stopped) as error:
        table.sample(N)
    batch = error.value.batch
    assert 0 < len(batch) == table.info().samples < N
    assert set(batch.data["n"]) == set(range(100))
    assert check(table) == []


def test_a_signal_during_a_sample_loses_no_item_of_a_queue(make_table: TableMaker, stop_when: StopWhen) -> None:
    size = 100_000
    table = make_table.queue(size, signature=SIGNATURE)
    table.insert_batch({"n": np.arange(size)})
    stop_when(lambda: len(table) < size)
    with pytest.raises(Stopped) as error:
        table.sample(size)
    rest = [table.sample(len(table)).data["n"]] if len(table) > 0 else []
    assert np.concatenate([error.value.batch.data["n"], *rest]).tolist() == list(range(size))
