"""The signature of a layout's tables."""

import shmreplay as sr
from bench.steps import Layout


def signature(layout: Layout) -> dict[str, sr.ArraySpec]:
    return {name: sr.ArraySpec(shape, dtype) for name, (shape, dtype) in layout.columns.items()}
