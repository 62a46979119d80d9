"""Adam (Kingma & Ba 2015)."""

from __future__ import annotations

import numpy as np

from shmreplay.clients.demo.q_network import Parameters


class Adam:
    """Moves parameters in place, against their gradients."""

    def __init__(self, parameters: Parameters, learning_rate: float) -> None:
        self._parameters = parameters
        self._learning_rate = learning_rate
        self._mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._num_steps = 0

    def step(self, gradients: Parameters, decay: float = 0.9, square_decay: float = 0.999) -> None:
        """One step. The averages start at 0; the rate is corrected for that."""
        self._num_steps += 1
        correction = np.sqrt(1 - square_decay**self._num_steps) / (1 - decay**self._num_steps)
        rate = np.float32(self._learning_rate * correction)
        for name, gradient in gradients.items():
            mean, square = self._mean[name], self._square[name]
            mean += np.float32(1 - decay) * (gradient - mean)
            square += np.float32(1 - square_decay) * (gradient * gradient - square)
            self._parameters[name] -= rate * mean / (np.sqrt(square) + np.float32(1e-8))
