"""The exceptions: what they are besides, what they carry, and how they travel."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from shmreplay import errors


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (errors.RateLimitTimeout, TimeoutError),
        (errors.TableNotFound, LookupError),
        (errors.SignatureMismatch, ValueError),
        (errors.DaemonUnavailable, ConnectionError),
        (errors.CheckpointNotFound, FileNotFoundError),
    ],
)
def test_an_error_is_also_the_builtin_that_callers_expect(cls: type[Exception], base: type[Exception]) -> None:
    error = cls("table 'replay': no")
    assert isinstance(error, base)
    assert isinstance(error, errors.ShmReplayError)
    assert str(error) == "table 'replay': no"


def test_every_error_has_the_one_root() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) == 15
    assert all(issubclass(cls, errors.ShmReplayError) for cls in classes)


def test_a_timeout_carries_what_was_done_before_it_also_through_pickle() -> None:
    error = errors.RateLimitTimeout("late", batch={"reward": 1.0}, keys=np.array([7, 9]))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "late"
    assert again.batch == {"reward": 1.0}
    assert again.keys.tolist() == [7, 9]


def test_a_timeout_and_a_full_arena_carry_nothing_unless_told() -> None:
    late, full = errors.RateLimitTimeout("late"), errors.ArenaFull("full")
    assert late.batch is None
    assert late.keys is None
    assert full.keys is None


def test_a_full_arena_carries_the_keys_that_went_in() -> None:
    keys = errors.ArenaFull("full", keys=np.array([3])).keys
    assert keys is not None
    assert keys.tolist() == [3]


def test_an_internal_error_asks_once_to_be_reported() -> None:
    error = errors.InternalError("two lists disagree")
    assert str(error) == "two lists disagree; please report"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors.InternalError()) == "please report"


@pytest.mark.parametrize(
    "cls", [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
)
def test_a_remote_error_comes_back_as_its_own_class(cls: type[Exception]) -> None:
    error = errors.remote_error(cls.__name__, "no room")
    assert type(error) is cls
    assert str(error).startswith("no room")


@pytest.mark.parametrize("cls", [ValueError, TypeError, PermissionError, OSError])
def test_a_remote_builtin_error_comes_back_as_itself(cls: type[Exception]) -> None:
    error = errors.remote_error(cls.__name__, "no")
    assert type(error) is cls
    assert str(error) == "no"


@pytest.mark.parametrize("name", ["KeyError", "SystemExit", "", "__class__"])
def test_any_other_remote_error_is_an_internal_one_that_keeps_its_name(name: str) -> None:
    error = errors.remote_error(name, "odd")
    assert type(error) is errors.InternalError
    assert str(error) == f"{name}: odd; please report"
