"""The χ² test without a table of it."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Fair draws are off by so many standard deviations once in five hundred million checks, each of a seed of its own.
LIMIT = 6.0
FEWEST = 8.0  # draws that a cell must expect; cells of fewer are thrown together


def deviation(counts: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """How far counts are from what the probabilities make expect, in standard deviations (Wilson and Hilferty 1931).

    About 0 for draws by these probabilities, up to ±LIMIT; large for others; far below for draws that are too even.
    """
    probabilities = np.asarray(probabilities, float)
    counts = np.asarray(counts, float)
    assert counts[probabilities == 0].sum() == 0, "what has no probability was drawn"
    expected = probabilities / probabilities.sum() * counts.sum()
    order = np.argsort(expected)
    cells = np.cumsum(expected[order]) // FEWEST
    observed = np.bincount(cells.astype(np.int64), counts[order])
    wanted = np.bincount(cells.astype(np.int64), expected[order])
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 1
    if freedom == 0:
        return 0.0
    chi = float(np.sum((observed - wanted) ** 2 / wanted))
    scale = 2 / (9 * freedom)
    return float(((chi / freedom) ** (1 / 3) - (1 - scale)) / math.sqrt(scale))


def is_drawn_by(counts: NDArray[Any], probabilities: NDArray[Any]) -> bool:
    """Whether the counts are what draws by these probabilities give."""
    return abs(deviation(counts, probabilities)) < LIMIT
