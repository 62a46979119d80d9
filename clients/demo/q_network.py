"""QNetwork: a small multilayer perceptron in NumPy, with its gradient."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Parameters = dict[str, Array]

SIZES = (4, 64, 64, 2)  # CartPole: 4 numbers in, the values of 2 actions out


class QNetwork:
    """Values of all actions in a state. ReLU between the layers.

    Attributes:
        parameters: float32 arrays by name: `weight0` `[4, 64]`, `bias0` `[64]`, ...
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.parameters: Parameters = {}
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(SIZES)):
            weight = rng.normal(0.0, np.sqrt(2.0 / fan_in), (fan_in, fan_out))
            self.parameters[f"weight{i}"] = weight.astype(np.float32)
            self.parameters[f"bias{i}"] = np.zeros(fan_out, np.float32)

    @staticmethod
    def signature() -> Parameters:
        """Arrays of the parameters' shapes and dtypes."""
        return QNetwork(np.random.default_rng(0)).parameters

    def copy(self) -> QNetwork:
        """Another network with a copy of the weights."""
        other = QNetwork.__new__(QNetwork)
        other.parameters = {name: value.copy() for name, value in self.parameters.items()}
        return other

    def __call__(self, observations: Array) -> Array:
        """`[B, 4]` -> `[B, 2]`."""
        return self._forward(observations)[-1]

    def gradients(self, observations: Array, output_gradient: Array) -> Parameters:
        """The parameters' gradients, from `[B, 4]` and the loss's gradient by the output, `[B, 2]`."""
        activations = self._forward(observations)
        gradients: Parameters = {}
        flowing = output_gradient
        for i in reversed(range(len(SIZES) - 1)):
            gradients[f"weight{i}"] = activations[i].T @ flowing
            gradients[f"bias{i}"] = flowing.sum(axis=0)
            flowing = (flowing @ self.parameters[f"weight{i}"].T) * (activations[i] > 0)
        return gradients

    def _forward(self, observations: Array) -> list[Array]:
        """The input and every layer's output."""
        activations = [observations]
        for i in range(len(SIZES) - 1):
            output = activations[-1] @ self.parameters[f"weight{i}"] + self.parameters[f"bias{i}"]
            is_last = i == len(SIZES) - 2
            activations.append(output if is_last else np.maximum(output, 0))
        return activations
