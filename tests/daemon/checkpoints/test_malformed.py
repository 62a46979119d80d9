"""Files that no saver wrote: every checksum is right, and the words under it are not."""

import pathlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_file import CheckpointReader, CheckpointWriter, SectionKind
from tests.support.daemons import table

Plain = dict[str, Any]


class Parts(NamedTuple):
    """A checkpoint, taken to pieces: kind, arena, table, and what the section holds."""

    sections: list[tuple[SectionKind, int, int, Any]]

    def first(self, kind: SectionKind) -> Any:
        """What the first section of a kind holds, to be changed."""
        return next(holds for found, _, _, holds in self.sections if found is kind)

    def move(self, kind: SectionKind, *, arena: int = 0, table: int = 0) -> None:
        """Gives the first section of a kind to another arena or table."""
        at = next(i for i, section in enumerate(self.sections) if section[0] is kind)
        self.sections[at] = (kind, arena, table, self.sections[at][3])

    def write(self, path: str) -> None:
        with open(path, "wb") as file:
            writer = CheckpointWriter(file.fileno())
            for kind, arena, table, holds in self.sections:
                if isinstance(holds, dict):
                    writer.write_plain(kind, holds, arena)
                else:
                    writer.write(kind, np.frombuffer(bytes(holds), np.uint8), arena, table)
            writer.end()


def take_apart(path: str) -> Parts:
    reader, parts = CheckpointReader(path), Parts([])
    parts.sections.append((SectionKind.MANIFEST, 0, 0, reader.manifest))
    while (section := reader.next()).kind is not SectionKind.END:
        is_plain = section.kind < SectionKind.PIECES
        holds = reader.plain(section) if is_plain else bytearray(section.payload.tobytes())
        parts.sections.append((section.kind, section.arena, section.table, holds))
    reader.close()
    return parts


def geometry(parts: Parts) -> Plain:
    found: Plain = parts.first(SectionKind.MANIFEST)["arenas"][0]["geometry"]
    return found


def second_arena(parts: Parts, **changes: Any) -> None:
    arenas = parts.first(SectionKind.MANIFEST)["arenas"]
    arenas[1] = {**arenas[1], **changes}


def word(parts: Parts, name: str, value: object) -> None:
    parts.first(SectionKind.ARENA)["tables"][0][name] = value


def pattern(parts: Parts, place: int, value: object) -> None:
    parts.first(SectionKind.ARENA)["patterns"][0][place] = value


def item(parts: Parts, offset: int, value: int) -> None:
    struct.pack_into("<I", parts.first(SectionKind.ITEMS), offset, value)


PADDING_AFTER = 76

CASES: dict[str, tuple[Callable[[Parts], object], str]] = {
    "geometry that is too large a number": (lambda p: geometry(p).update(num_chunks=2**40), "geometry .*num_chunks"),
    "geometry that is no number": (lambda p: geometry(p).update(num_blocks="x"), "geometry .*num_blocks"),
    "geometry out of range": (lambda p: geometry(p).update(chunk_steps=0), "chunk_steps must be in"),
    "geometry of other words": (lambda p: geometry(p).update(specs=b""), "it has .*'specs', expected 'chunk_steps'"),
    "an arena's name that leads elsewhere": (lambda p: second_arena(p, name="../x"), r"arena name '\.\./x'"),
    "an arena's name that comes twice": (lambda p: second_arena(p, name="a"), "two have the same name in a, a"),
    "specs that are none": (lambda p: second_arena(p, specs=b"\xc1"), "its arenas cannot be read"),
    "an arena that is none": (lambda p: p.first(SectionKind.MANIFEST).update(arenas=[7]), "its arenas cannot be read"),
    "no manifest": (lambda p: p.sections.pop(0), "expected the manifest"),
    "a table too many": (
        lambda p: p.first(SectionKind.ARENA)["tables"].append({"name": "b"}),
        r"it has tables \['a', 'b'\], ",
    ),
    "a table too few": (
        lambda p: p.first(SectionKind.ARENA)["tables"].clear(),
        r"it has tables \[\], the manifest has",
    ),
    "a word that is missing": (lambda p: p.first(SectionKind.ARENA)["tables"][0].pop("paused"), "paused"),
    "a word of another kind": (lambda p: word(p, "evicted", "x"), "its contents make no sense"),
    "a pattern that is too short": (
        lambda p: p.first(SectionKind.ARENA)["patterns"][0].pop(),
        "its contents make no sense",
    ),
    "a pattern of a large number": (lambda p: pattern(p, 0, 2**40), "its contents make no sense"),
    "items of a table that is not there": (
        lambda p: p.move(SectionKind.ITEMS, table=9),
        "it is of table 9, but the arena",
    ),
    "items of another arena": (lambda p: p.move(SectionKind.ITEMS, arena=1), "it belongs to arena 1, expected 0"),
    "an output that is too long": (lambda p: word(p, "longest", [2**31, 1]), "an output of 2147483648 rows"),
    "items without a structure": (lambda p: word(p, "structure_pattern", 2**32 - 1), "has items and no structure"),
    "padding that is too long": (lambda p: item(p, PADDING_AFTER, 2**31), "2147483648 rows of padding"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of two arenas, of ten items and of none."""
    with (
        sr.Server([table("a"), table("b")], checkpoint_dir=str(tmp_path_factory.mktemp("saved"))) as server,
        server.client() as client,
    ):
        client.table("a").insert_batch({"x": np.ones((10, 3), np.float32), "n": np.arange(10)})
        return client.checkpoint()


@pytest.fixture(scope="module")
def restoring() -> Any:
    with sr.Server() as server, server.client() as client:
        yield client


@pytest.mark.parametrize("case", list(CASES))
def test_words_that_do_not_fit_are_damage_and_leave_nothing(
    saved: str, restoring: sr.Client, tmp_path: pathlib.Path, case: str
) -> None:
    change, reason = CASES[case]
    parts = take_apart(saved)
    change(parts)
    path = str(tmp_path / "changed")
    parts.write(path)
    with pytest.raises(sr.DamagedCheckpoint, match=f"checkpoint {path} is damaged: section .* at offset .*{reason}"):
        restoring.restore(path)
    assert restoring.tables() == {}
    take_apart(saved).write(path)  # the same, but for the change
    found = restoring.restore(path)
    for name in found["tables"]:
        restoring.drop_table(name)
