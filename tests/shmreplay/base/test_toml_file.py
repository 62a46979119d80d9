"""The lines on which keys of a TOML file stand."""

from __future__ import annotations

import pathlib

import pytest

from shmreplay.base.toml_file import TomlFile
from shmreplay.tables.table_config import read_tables

TEXT = '''\
# max_size = 0 is no key here
text = """
[log]
level = "no key either"
"""

[log]
level = "INFO"
"odd name" = 1

[tables.replay]
max_size = 10
columns = { x = "float32", y = { dtype = "uint8", shape = [
    84,
    84,
] } }

item.kind = "NStep"
item.n = 3

[tables.replay.sampler]
kind = "Uniform"
'''


@pytest.fixture
def file(tmp_path: pathlib.Path) -> TomlFile:
    path = tmp_path / "a.toml"
    path.write_text(TEXT, encoding="utf-8")
    return TomlFile(path)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["text"], 2),
        (["log"], 7),
        (["log", "level"], 8),
        (["log", "odd name"], 9),
        (["tables", "replay"], 11),
        (["tables", "replay", "max_size"], 12),
        (["tables", "replay", "columns", "y", "shape"], 13),
        (["tables", "replay", "item"], 18),
        (["tables", "replay", "item", "n"], 19),
        (["tables", "replay", "sampler"], 21),
        (["tables", "replay", "sampler", "kind"], 22),
    ],
)
def test_a_key_is_found_on_the_line_where_its_statement_begins(file: TomlFile, keys: list[str], line: int) -> None:
    assert file.line_of(keys) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("log.level is 'LOUD'; expected another", 8),
        ("log.levels is not known", 7),
        ("log.odd name is 1", 9),
        ("tables.replay: max_size is 0", 12),
        ("tables.replay.columns.x: dtype", 13),
        ("tables.replay.rate_limiter is missing", 11),
    ],
)
def test_a_text_gets_the_line_of_the_key_that_it_begins_with(file: TomlFile, text: str, line: int) -> None:
    assert file.named(text) == f"{file.path}:{line}: {text}"


def test_a_text_without_a_key_gets_the_file_alone(file: TomlFile) -> None:
    assert file.named("arena 'a': no room") == f"{file.path}: arena 'a': no room"


def test_what_tables_cannot_be_is_named_with_its_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text('[tables.t]\nmax_size = 1\n\n[tables.t.columns]\nx = "float32"\ny = "flota32"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tables\.toml:6: tables\.t\.columns\.y: dtype 'flota32' is not known"):
        read_tables(path)
