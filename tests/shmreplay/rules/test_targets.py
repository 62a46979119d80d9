"""n-step targets against a plain loop."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr


def batch_of(seed: int, n: int, *, squeezed: bool = False) -> Any:
    """40 items of up to n steps, some of which terminate, with rubbish where a step is missing."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, n + 1, 40)
    real = np.arange(n) < lengths[:, None]
    data: dict[str, NDArray[Any]] = {
        "r": rng.normal(size=(40, n)).astype(np.float32),
        "done": rng.random((40, n)) < 0.2,
    }
    data["r"][~real] = np.nan
    data["done"][~real] = True
    mask: dict[str, NDArray[Any]] = {"r": real, "done": real}
    if squeezed:
        data, mask = ({name: values[:, 0] for name, values in tree.items()} for tree in (data, mask))
    return SimpleNamespace(data=data, mask=mask)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_targets_are_those_of_a_plain_loop(n: int) -> None:
    batch = batch_of(n, n)
    got = sr.n_step_targets(batch, 0.9, reward="r", terminated="done")
    for i in range(40):
        k = int(batch.mask["r"][i].sum())
        rewards, ended = batch.data["r"][i, :k], batch.data["done"][i, :k].any()
        assert got.returns[i] == pytest.approx(sum(0.9**j * float(r) for j, r in enumerate(rewards)))
        assert got.discounts[i] == pytest.approx(0.0 if ended else 0.9**k)
        assert got.num_steps[i] == k
    assert [values.dtype for values in got] == [np.dtype("float64"), np.dtype("float64"), np.dtype("int64")]


def test_batches_of_tensors_have_the_same_targets() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    batch = batch_of(3, 3)
    trees = [{name: torch.from_numpy(values) for name, values in tree.items()} for tree in (batch.data, batch.mask)]
    tensors = SimpleNamespace(data=trees[0], mask=trees[1])
    for a, b in zip(
        sr.n_step_targets(batch, 0.9, reward="r", terminated="done"),
        sr.n_step_targets(tensors, 0.9, reward="r", terminated="done"),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_one_step_without_a_step_axis_is_the_same() -> None:
    with_axis, without = batch_of(0, 1), batch_of(0, 1, squeezed=True)
    for a, b in zip(
        sr.n_step_targets(with_axis, 0.9, reward="r", terminated="done"),
        sr.n_step_targets(without, 0.9, reward="r", terminated="done"),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_a_batch_without_terminations_never_terminated() -> None:
    batch = batch_of(1, 3)
    got = sr.n_step_targets(batch, 1.0, reward="r", terminated="none")
    assert got.discounts.tolist() == [1.0] * 40


def test_a_discount_of_zero_leaves_the_first_reward() -> None:
    batch = batch_of(2, 3)
    got = sr.n_step_targets(batch, 0.0, reward="r", terminated="done")
    np.testing.assert_allclose(got.returns, batch.data["r"][:, 0])
    assert got.discounts.tolist() == [0.0] * 40


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_a_gamma_out_of_range_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"n_step_targets: gamma is {gamma!r}; expected 0..1")):
        sr.n_step_targets(batch_of(0, 1), gamma, reward="r")


def test_a_batch_without_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="n_step_targets: the batch has no 'reward'; it has 'r', 'done'"):
        sr.n_step_targets(batch_of(0, 1), 0.9)


def bootstrapped(next_mask: Any, **shown: Any) -> Any:
    """A batch of two steps an item, the second of which did not terminate."""
    data = {"reward": np.ones((2, 1)), "terminated": np.array([[True], [False]])}
    mask = {name: np.ones((2, 1), np.bool_) for name in data}
    return SimpleNamespace(data=data, mask={**mask, "next_observation": next_mask, **shown})


@pytest.mark.parametrize(
    "lacking",
    [
        np.array([False, False]),
        {"a": np.array([True, True]), "b": (np.array([True, False]),)},
        np.array([[True, True], [True, False]]),  # the newest frame of a stack
    ],
)
def test_an_item_that_did_not_terminate_must_have_its_next_step(lacking: Any) -> None:
    with pytest.raises(
        ValueError, match=r"'next_observation' is masked in rows \[1\], which did not terminate: .*final_s"
    ):
        sr.n_step_targets(bootstrapped(lacking), 0.9)
    assert sr.n_step_targets(bootstrapped(lacking), 0.0).discounts.tolist() == [0.0, 0.0]


def test_older_frames_of_a_stack_and_padding_after_it_may_be_masked() -> None:
    stack = np.array([[False, False, False], [False, True, False]])
    assert sr.n_step_targets(bootstrapped(stack), 0.9).discounts.tolist() == [0.0, 0.9]
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        sr.n_step_targets(bootstrapped(stack, observation=np.ones((2, 3), np.bool_)), 0.9)


def test_rewards_and_ends_of_different_lengths_are_refused() -> None:
    batch = batch_of(3, 3)
    batch.data["done"] = batch.data["done"][:, :2]
    with pytest.raises(
        ValueError, match="'r' has 3 steps and 'done' 2; expected as many of both: give both in pad_to="
    ):
        sr.n_step_targets(batch, 0.9, reward="r", terminated="done")


@pytest.mark.parametrize("kind", ["arrays", "torch", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("time_major", [False, True])
def test_rewards_of_any_shape_have_the_targets_of_their_components(
    shape: tuple[int, ...], n: int, time_major: bool, kind: str
) -> None:
    plain = batch_of(5, 3)
    rng = np.random.default_rng(7)
    rewards = rng.integers(-4, 5, (40, 3, *shape)).astype(np.float32)
    axes = (lambda array: array[:, 0]) if n == 1 else (lambda array: array.swapaxes(0, 1)) if time_major else np.asarray
    data: dict[str, Any] = {"r": axes(rewards), "done": axes(plain.data["done"])}
    mask = {name: axes(plain.mask[name]) for name in data}
    if kind != "arrays":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        data = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in data.items()}
        data["r"] = data["r"].to(torch.bfloat16) if kind == "bfloat16" else data["r"]
    batch = SimpleNamespace(data=data, mask=mask, time_major=time_major)
    got = sr.n_step_targets(batch, 0.5, reward="r", terminated="done")
    assert got.returns.shape == got.discounts.shape == (40, *shape)
    assert got.num_steps.shape == (40,)
    for index in np.ndindex(*shape):
        one = {"r": rewards[(slice(None), slice(None), *index)][:, :n], "done": plain.data["done"][:, :n]}
        component = SimpleNamespace(data=one, mask={name: plain.mask[name][:, :n] for name in one})
        want = sr.n_step_targets(component, 0.5, reward="r", terminated="done")
        at = (slice(None), *index)
        np.testing.assert_allclose(got.returns[at], want.returns)
        np.testing.assert_array_equal(got.discounts[at], want.discounts)


def test_each_component_may_terminate_by_itself() -> None:
    data = {"r": np.ones((1, 2, 2)), "done": np.array([[[False, False], [True, False]]])}
    mask = {"r": np.ones((1, 2), bool), "done": np.ones((1, 2), bool)}
    got = sr.n_step_targets(SimpleNamespace(data=data, mask=mask), 0.5, reward="r", terminated="done")
    assert got.discounts.tolist() == [[0.0, 0.25]]
    assert got.returns.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize(
    ("rewards", "flags", "text"),
    [
        (np.ones((4, 2, 3)), np.zeros((4, 2, 2), bool), r"'r' has shape \(3,\) and its 'done' \(2,\)"),
        (np.ones((4, 2)), np.zeros((4, 2, 1), bool), r"'r' has shape \(\) and its 'done' \(1,\)"),
        (np.ones((4, 2), complex), np.zeros((4, 2), bool), "'r' has dtype complex128; expected real numbers"),
        ({"a": np.ones((4, 2))}, np.zeros((4, 2), bool), "'r' is a dict; expected one array"),
        (np.ma.masked_equal(np.ones((4, 2)), 1), np.zeros((4, 2), bool), "8 of 8 values are masked"),
        (np.ones((2, 4)), np.zeros((4, 2), bool), r"'r' has the first axes \(2, 4\), and its mask \(4, 2\)"),
    ],
)
def test_rewards_and_flags_that_do_not_fit_are_named(rewards: Any, flags: Any, text: str) -> None:
    real = np.ones((4, 2), bool)
    mask = {"r": {"a": real} if isinstance(rewards, dict) else real, "done": real}
    batch = SimpleNamespace(data={"r": rewards, "done": flags}, mask=mask)
    with pytest.raises(ValueError, match=text):
        sr.n_step_targets(batch, 0.5, reward="r", terminated="done")
