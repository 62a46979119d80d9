"""Interrupts: a signal is noted and raises nothing; once one was noted, later ones change nothing."""

import signal
from collections.abc import Iterator

import pytest

from shmreplay.clients.demo.interrupts import NUMBERS, Interrupts


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)  # also where the tests were started with one ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_a_signal_the_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with Interrupts() as interrupts:
        assert [signal.getsignal(number) for number in NUMBERS] != before
    assert interrupts.exit_code == 0
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
    assert interrupts.exit_code == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_noted_and_a_second_one_disturbs_nothing(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(number)
    assert interrupts.exit_code == 128 + number
    signal.raise_signal(number)  # with the handler of before it would end the process or raise
    assert interrupts.exit_code == 128 + number
