"""Versions of a tree: the newest wins, is whole, lies where it was written, and stays while somebody reads it."""

import collections
import signal
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.params import Params, Snapshot
from shmreplay.tables.plan import plan
from tests.clients.params.conftest import PolicyMaker, number_of, publish_until_full, seen, tree
from tests.support.waiting import eventually


def awaited(policy: Params) -> threading.Thread:
    """Publishes once somebody waits for it; until then it is not seen."""

    def publish() -> None:
        eventually(lambda: policy._table._native.is_awaited)
        policy.publish(tree(policy.version + 1))

    thread = threading.Thread(target=publish)
    thread.start()
    return thread


# --- the newest wins -------------------------------------------------------------------------------------------------


def test_the_newest_version_is_read_and_its_number_is_known(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    assert policy.version == 0
    for number in range(1, 60):
        assert policy.publish(tree(number)) == number
        assert policy.version == number
        assert seen(policy.latest()) == number
        assert seen(policy.latest(min_version=number, timeout_s=0)) == number


def test_its_age_is_known(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    before = time.time()
    policy.publish(tree(1))
    after = time.time()
    with policy.latest() as snapshot:
        assert before - 1e-3 <= snapshot.published_at <= after + 1e-3
        assert 0 <= snapshot.age_s <= time.time() - before + 1e-3


def test_numbers_do_not_begin_anew_after_a_reset(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    policy._table.reset()
    with pytest.raises(sr.RateLimitTimeout, match="the table is empty"):
        policy.latest(timeout_s=0)
    assert policy.publish(tree(2)) == 2
    assert seen(policy.latest()) == 2


def test_several_publishers_give_each_version_a_number_of_its_own(make_policy: PolicyMaker) -> None:
    policy = make_policy(max_publishers=4)
    numbers: list[int] = []

    def publish() -> None:
        for _ in range(100):
            numbers.append(policy.publish(tree(7)))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 401))
    with policy.latest() as snapshot:
        assert (snapshot.version, number_of(snapshot.data)) == (400, 7)


# --- waiting for it --------------------------------------------------------------------------------------------------


def test_a_reader_waits_for_the_first_version(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    thread = awaited(policy)
    assert seen(policy.latest()) == 1
    thread.join()


def test_a_reader_waits_for_a_version_that_is_new_enough(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    for number in range(1, 5):
        thread = awaited(policy)
        assert seen(policy.latest(min_version=number)) == number
        thread.join()


def test_a_timeout_says_which_version_there_is(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    with pytest.raises(sr.RateLimitTimeout, match=r"no version 1 or newer within 0\.01 s: none was ever pub"):
        policy.latest(timeout_s=0.01)
    policy.publish(tree(1))
    with pytest.raises(TimeoutError, match=r"no version 3 or newer within 0 s: the newest is 1, published \d+ s ago"):
        policy.latest(min_version=3, timeout_s=0)


def test_ctrl_c_ends_the_wait_for_a_version(make_policy: PolicyMaker) -> None:
    policy = make_policy()

    def interrupt() -> None:
        eventually(lambda: policy._table._native.is_awaited)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        policy.latest()
    thread.join()


def test_a_drop_ends_the_wait_for_a_version(make_policy: PolicyMaker) -> None:
    policy = make_policy()

    def drop() -> None:
        eventually(lambda: policy._table._native.is_awaited)
        make_policy.client.drop_table(policy._table.name)

    thread = threading.Thread(target=drop)
    thread.start()
    with pytest.raises(sr.TableClosed):
        policy.latest()
    thread.join()
    with pytest.raises(sr.TableClosed):
        policy.publish(tree(1))
    with pytest.raises(sr.TableClosed):
        _ = policy.version


def test_a_client_that_is_closed_ends_the_wait_for_a_version(server: sr.Server, make_policy: PolicyMaker) -> None:
    name = make_policy()._table.name
    with server.client() as client:
        policy = Params(client.table(name))

        def close() -> None:
            eventually(lambda: policy._table._native.is_awaited)
            client.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(sr.ShmReplayError, match="closed"):
            policy.latest()
        thread.join()


# --- where it lies ---------------------------------------------------------------------------------------------------


def test_a_version_is_the_shared_memory_itself_and_read_only(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    with policy.latest() as one, policy.latest() as other:
        assert one._view[0].is_view["params"]["layers"][0]["weight"] is True
        for layer, same in zip(one.data["layers"], other.data["layers"], strict=True):
            for name, array in layer.items():
                assert array.ctypes.data == same[name].ctypes.data
                assert array.ctypes.data % 128 == 0
                assert array.flags.c_contiguous
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0


def test_a_version_that_is_read_stays_as_it_is_while_newer_ones_come(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    first = policy.latest()
    for number in range(2, 100):
        policy.publish(tree(number))
        assert number_of(first.data) == 1
    assert seen(policy.latest()) == 99
    assert seen(first) == 1


def test_publish_waits_for_memory_that_readers_use_and_loses_no_version(
    make_policy: PolicyMaker,
) -> None:
    policy = make_policy()
    held: list[Snapshot] = []
    text = publish_until_full(policy, lambda: held.append(policy.latest()))
    assert "no room for more steps" in text
    assert "some by this process itself" in text
    assert len(held) >= 10
    newest = held[-1].version
    assert seen(policy.latest()) == policy.version == newest
    assert [seen(snapshot) for snapshot in held] == list(range(1, newest + 1))
    assert policy.publish(tree(newest + 1), timeout_s=100) == newest + 1
    assert seen(policy.latest()) == newest + 1


def test_what_is_released_shows_nothing_more(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    snapshot = policy.latest()
    assert repr(snapshot) == "<Snapshot of version 1>"
    snapshot.release()
    snapshot.release()
    assert snapshot.is_released
    assert (snapshot.version, repr(snapshot)) == (1, "<Snapshot of version 1 released>")
    for use in (lambda: snapshot.data, snapshot.copy, lambda: snapshot.copy_to(tree(0)), snapshot.__enter__):
        with pytest.raises(sr.ShmReplayError, match="was released"):
            use()


def test_a_copy_is_the_callers_own(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    with policy.latest() as snapshot:
        copy = snapshot.copy()
        copy["layers"][0]["weight"][...] = 3
        assert number_of(snapshot.data) == 1
        again = snapshot.copy()
    assert number_of(again) == 1


def test_a_version_is_written_into_arrays_that_are_there(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(4))
    own = tree(0)
    arrays = [own["layers"][0]["weight"], own["steps"]]
    with policy.latest() as snapshot:
        snapshot.copy_to(own)
    assert number_of(own) == 4
    assert arrays[0] is own["layers"][0]["weight"]
    assert int(arrays[1]) == 4


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda own: own["layers"][1].update(bias=np.zeros(3, np.float32)),
            ValueError,
            r"'layers\[1\]/bias' is float32 \(3,\)",
        ),
        (
            lambda own: own["layers"][1].update(bias=np.zeros(70)),
            ValueError,
            r"is float64 \(70,\); expected a writable",
        ),
        (lambda own: own["layers"][1].update(bias=7.0), TypeError, r"'layers\[1\]/bias' is float; expected a writable"),
        (lambda own: own.update(steps=own["steps"] + 1), TypeError, "'steps' is int64; expected a writable"),
        (lambda own: own["layers"][1]["bias"].setflags(write=False), ValueError, "is read-only; expected a writable"),
        (lambda own: own.pop("steps"), sr.SignatureMismatch, "'steps' is missing; expected"),
        (lambda own: own.update(more=1), sr.SignatureMismatch, "unknown key 'more'"),
    ],
)
def test_nothing_is_written_into_a_tree_that_does_not_fit(
    make_policy: PolicyMaker, change: Any, error: type[Exception], text: str
) -> None:
    policy = make_policy()
    policy.publish(tree(4))
    own = tree(0)
    change(own)
    with policy.latest() as snapshot, pytest.raises(error, match=text):
        snapshot.copy_to(own)
    np.testing.assert_array_equal(own["layers"][0]["weight"], tree(0)["layers"][0]["weight"])


# --- what may be published -------------------------------------------------------------------------------------------


class Layer(NamedTuple):
    weight: Any
    bias: Any


@pytest.mark.parametrize(
    "like",
    [
        np.arange(5, dtype=np.float32),
        [np.zeros(3), (np.ones(2), np.array(7, np.int32))],
        Layer(np.ones((2, 2), np.float16), np.zeros(0, np.float32)),
        collections.OrderedDict([("0.weight", np.ones(3)), ("0.bias", np.zeros(2)), ("terminated", np.array(True))]),
        {str(i): np.full(i, i, np.int64) for i in range(124)},
    ],
    ids=["array", "lists", "named tuple", "state dict", "as many as there may be"],
)
def test_any_tree_of_arrays_comes_back_as_it_was(make_policy: PolicyMaker, like: Any) -> None:
    policy = make_policy(like)
    policy.publish(like)
    with policy.latest() as snapshot:
        copy = snapshot.copy()
    assert str(copy) == str(dict(like) if isinstance(like, dict) else like)


def many(number: int, size: int = 3) -> list[dict[str, Any]]:
    """A tree of more arrays than a table has columns, of three dtypes and odd sizes."""
    dtypes = (np.float32, np.float64, np.int8)
    return [
        {str(i): np.full((i % size, 5), number + i, dtypes[(i + k) % 3]) for i in range(100)} | {"n": np.array(number)}
        for k in range(3)
    ]


def test_more_arrays_than_a_table_has_columns_come_back_as_they_were(make_policy: PolicyMaker) -> None:
    policy = make_policy(many(0))
    for number in (1, 2):
        assert policy.publish(many(number)) == number
        with policy.latest() as snapshot, policy.latest() as other:
            for part, same, wanted in zip(snapshot.data, other.data, many(number), strict=True):
                assert part.keys() == wanted.keys()
                for name, array in part.items():
                    np.testing.assert_array_equal(array, wanted[name])
                    assert (array.dtype, array.shape) == (wanted[name].dtype, wanted[name].shape)
                    assert array.ctypes.data == same[name].ctypes.data
                    assert array.ctypes.data % 64 == 0
                    assert not array.flags.writeable
            assert str(snapshot.copy()) == str(many(number))
            own = many(0)
            snapshot.copy_to(own)
            assert str(own) == str(many(number))


def test_a_tree_of_more_arrays_than_columns_is_read_only_with_its_example(make_policy: PolicyMaker) -> None:
    table = make_policy(many(0))._table
    with pytest.raises(ValueError, match="more arrays than columns, so it does not know the tree; give it: like=tree"):
        Params(table)
    for other in (many(0, size=4), many(0)[:2], many(0)[::-1], np.zeros(3)):
        with pytest.raises(ValueError, match="like is another tree than the table was made for"):
            Params(table, like=other)
    wrong = many(0)
    wrong[2]["7"] = np.zeros((2, 5), np.float32)
    with pytest.raises(sr.SignatureMismatch, match=r"column 'params\[2\]/7': expected float32 \(1, 5\), got "):
        Params(table, like=many(9)).publish(wrong)


def test_many_arrays_of_which_one_is_not_plain_are_refused(make_policy: PolicyMaker) -> None:
    like = {str(i): sr.ArraySpec((2,), "float32", compression="lz4" if i == 77 else None) for i in range(125)}
    with pytest.raises(ValueError, match=r"'params/77' is .*; expected a plain array of a fixed shape"):
        make_policy(like)


def test_a_tree_that_does_not_fit_is_refused_and_the_newest_stays(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    policy.publish(tree(1))
    wrong = tree(2)
    wrong["layers"][1]["bias"] = np.zeros(71, np.float32)
    with pytest.raises(sr.SignatureMismatch, match=r"column 'params/layers\[1\]/bias': expected float32 \(70,\)"):
        policy.publish(wrong)
    del wrong["steps"]
    with pytest.raises(sr.SignatureMismatch, match="column 'params/layers"):
        policy.publish(wrong)
    with pytest.raises(sr.SignatureMismatch, match="publish: expected a dict with the keys 'layers', 'steps'"):
        policy.publish([1, 2])
    assert seen(policy.latest()) == policy.version == 1


def test_the_caller_may_change_its_arrays_at_once(make_policy: PolicyMaker) -> None:
    policy = make_policy()
    own = tree(1)
    policy.publish(own)
    own["layers"][0]["weight"][...] = -1
    assert seen(policy.latest()) == 1


def test_tensors_are_published_and_written_into(make_policy: PolicyMaker) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    policy = make_policy(model.state_dict())
    policy.publish(dict(model.named_parameters()))  # they need a gradient
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    with policy.latest() as snapshot:
        snapshot.copy_to(other.state_dict())
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


# --- misuse ----------------------------------------------------------------------------------------------------------


def test_other_tables_are_refused(server: sr.Server) -> None:
    with server.client() as client:
        client.create_tables([sr.Table("plain", {"x": sr.ArraySpec((), "float32")}, 1)])
        with pytest.raises(ValueError, match="'plain' is not one of a tree's versions; create it as shmreplay"):
            Params(client.table("plain"))
        with pytest.raises(TypeError, match="table is str; expected a handle"):
            Params("plain")  # type: ignore[arg-type]
        client.drop_table("plain")


@pytest.mark.parametrize(("version", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_a_version_that_can_not_be_is_refused(make_policy: PolicyMaker, version: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="min_version is "):
        make_policy().latest(min_version=version)


def test_large_trees_take_the_memory_of_few_versions() -> None:
    big = params.table("big", {"w": sr.ArraySpec((32 * 2**20,), "uint8")})
    small = params.table("small", {"w": sr.ArraySpec((2**20,), "uint8")})
    assert [plan([table]).num_chunks for table in (big, small)] == [9, 23]
