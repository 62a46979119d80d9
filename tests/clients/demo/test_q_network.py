"""The demo's network: gradients against finite differences, and an optimiser that gets somewhere."""

from typing import Any

import numpy as np

from shmreplay.clients.demo.adam import Adam
from shmreplay.clients.demo.q_network import QNetwork


def test_gradients_are_those_of_finite_differences(rng: np.random.Generator) -> None:
    network = QNetwork(rng)
    parameters: dict[str, Any] = network.parameters
    for name, value in parameters.items():  # in double precision, and with biases that are not all 0
        parameters[name] = value.astype(np.float64) + rng.normal(0, 0.1, value.shape)
    observations: Any = rng.normal(size=(5, 4))
    slope: Any = rng.normal(size=(5, 2))
    gradients = network.gradients(observations, slope)
    assert gradients.keys() == parameters.keys()
    for name, value in parameters.items():
        for index in [tuple(rng.integers(size) for size in value.shape) for _ in range(10)]:
            middle, step = value[index], 1e-6
            value[index] = middle + step
            above = (network(observations) * slope).sum()
            value[index] = middle - step
            below = (network(observations) * slope).sum()
            value[index] = middle
            np.testing.assert_allclose(gradients[name][index], (above - below) / (2 * step), rtol=1e-4, atol=1e-6)


def test_a_copy_keeps_its_weights_when_the_original_learns(rng: np.random.Generator) -> None:
    network = QNetwork(rng)
    copy = network.copy()
    observations = rng.normal(size=(8, 4)).astype(np.float32)
    before = copy(observations)
    np.testing.assert_array_equal(network(observations), before)
    Adam(network.parameters, 0.1).step(network.gradients(observations, np.ones((8, 2), np.float32)))
    np.testing.assert_array_equal(copy(observations), before)
    assert not np.allclose(network(observations), before)


def test_parameters_have_the_shapes_and_dtypes_of_the_signature(rng: np.random.Generator) -> None:
    network, signature = QNetwork(rng), QNetwork.signature()
    Adam(network.parameters, 0.1).step(network.gradients(np.ones((1, 4), np.float32), np.ones((1, 2), np.float32)))
    described = {name: (value.shape, value.dtype) for name, value in network.parameters.items()}
    assert described == {name: (value.shape, value.dtype) for name, value in signature.items()}


def test_the_first_step_of_adam_has_the_size_of_the_learning_rate() -> None:
    parameters = {"x": np.array([1.0, 1.0, 1.0], np.float32)}
    Adam(parameters, 0.25).step({"x": np.array([3.0, -0.01, 0.0], np.float32)})
    np.testing.assert_allclose(parameters["x"], [0.75, 1.25, 1.0], rtol=1e-5)


def test_adam_finds_the_minimum_of_a_parabola() -> None:
    parameters, optimum = {"x": np.zeros(3, np.float32)}, np.array([1.0, -2.0, 0.5], np.float32)
    adam = Adam(parameters, 0.05)
    for _ in range(500):
        adam.step({"x": parameters["x"] - optimum})
    np.testing.assert_allclose(parameters["x"], optimum, atol=1e-2)
