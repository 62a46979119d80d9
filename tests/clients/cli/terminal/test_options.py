"""What options may be: counts, seconds and keys, each refused in words; and plain tables of text."""

import argparse
import pathlib

import pytest

from shmreplay.clients.cli.terminal.options import (
    FOR_EVER_S,
    arenas_of,
    checkpoints_at,
    format_rows,
    key,
    positive,
    seconds,
)
from shmreplay.errors import CheckpointFailed


def test_what_fits_is_taken() -> None:
    assert positive("12") == 12
    assert seconds()("2.5") == 2.5
    assert seconds()("inf") == FOR_EVER_S, "no clock counts further"
    assert seconds(1, 5)("5") == 5
    assert key("-9223372036854775808") == -(2**63)
    assert key("9223372036854775807") == 2**63 - 1


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_a_count_is_a_whole_number_of_at_least_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no whole number of at least 1"):
        positive(text)


@pytest.mark.parametrize("text", ["-0.1", "nan", "soon", ""])
def test_seconds_are_a_number_within_their_bounds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected seconds >= 0"):
        seconds()(text)
    with pytest.raises(argparse.ArgumentTypeError, match="expected 1 to 5 seconds"):
        seconds(1, 5)(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "x", "1.0"])
def test_a_key_is_a_whole_number_of_64_bits(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no key"):
        key(text)


def test_a_directory_without_checkpoints_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointFailed, match="there is no checkpoint in"):
        checkpoints_at(str(tmp_path))
    assert checkpoints_at("/somewhere/one.checkpoint") == ["/somewhere/one.checkpoint"], "a file is taken by its word"


def test_rows_have_words_to_the_left_and_numbers_to_the_right() -> None:
    text = format_rows(["table", "items"], [["a", 12], ["longer", 3456]])
    assert text.splitlines() == ["table   items", "a          12", "longer   3456"]


def test_arenas_are_a_list_for_one_table_as_for_shards() -> None:
    assert arenas_of({"arena": "replay"}) == ["replay"]
    assert arenas_of({"arena": ["replay~0", "replay~1"]}) == ["replay~0", "replay~1"]
