"""PNG files: what rows of every layout become."""

import numpy as np
import pytest

from shmreplay.clients.cli.items.item_images import is_image, picture, write_png
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.specs import ArraySpec
from tests.support.png import read_png


def leaf(shape: tuple[int | None, ...], dtype: str = "uint8") -> Leaf:
    return Leaf("x", ArraySpec(shape, dtype), 0)


@pytest.mark.parametrize(
    "shape", [(4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4), (3, 4, 5), (1, 4, 5), (4, 84, 84), (None, 7, 3)]
)
def test_shapes_of_images_are_taken_for_such(shape: tuple[int | None, ...]) -> None:
    assert is_image(leaf(shape))


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (5, 1), (2, 3, 4, 5), (1, 5, 3)])
def test_other_shapes_are_not(shape: tuple[int, ...]) -> None:
    assert not is_image(leaf(shape))


def test_other_numbers_are_not() -> None:
    assert not is_image(leaf((4, 5), "complex64"))
    assert not is_image(leaf((4, 5), "bfloat16"))


def test_files_read_as_the_pixels_that_were_written(rng: np.random.Generator) -> None:
    for channels in (1, 3, 4):
        pixels = rng.integers(0, 256, (5, 7, channels), np.uint8)
        assert np.array_equal(read_png(write_png(pixels)), pixels)


def test_channels_come_first_or_last_and_stacks_side_by_side(rng: np.random.Generator) -> None:
    hwc = rng.integers(0, 256, (5, 7, 3), np.uint8)
    assert np.array_equal(picture(hwc, 3), hwc)
    assert np.array_equal(picture(np.moveaxis(hwc, -1, 0), 3), hwc)
    stack = rng.integers(0, 256, (2, 5, 7), np.uint8)
    found = picture(stack, 3)
    assert found.shape == (5, 7 + 2 + 7, 1)
    assert np.array_equal(found[:, :7, 0], stack[0])
    assert np.array_equal(found[:, 9:, 0], stack[1])


def test_rows_of_steps_follow_each_other_and_many_make_lines(rng: np.random.Generator) -> None:
    assert picture(rng.integers(0, 256, (3, 5, 7), np.uint8), 2).shape == (5, 3 * 7 + 2 * 2, 1)
    many = picture(rng.integers(0, 256, (30, 8, 8), np.uint8), 2)
    assert many.shape == (5 * 8 + 4 * 2, 6 * 8 + 5 * 2, 1)


def test_numbers_of_other_kinds_are_scaled() -> None:
    assert picture(np.array([[True, False]] * 2), 2)[0, :, 0].tolist() == [255, 0]
    assert picture(np.array([[0.0, 0.5, 1.0]] * 2), 2)[0, :, 0].tolist() == [0, 128, 255]
    assert picture(np.array([[-2.0, 0.0, 2.0]] * 2), 2)[0, :, 0].tolist() == [0, 128, 255]
    assert picture(np.array([[np.nan, np.inf, 1.0]] * 2), 2)[0, :, 0].tolist() == [0, 0, 255]
    assert picture(np.zeros((2, 2), np.int16), 2).max() == 0
