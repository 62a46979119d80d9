"""The file of a checkpoint: every byte counts, and a directory loses nothing that is not its own."""

import os
import pathlib
import struct
import zlib

import msgpack
import numpy as np
import pytest

from shmreplay.checkpoints.checkpoint_directory import PARTIAL, CheckpointDirectory, find_checkpoints, moment_of
from shmreplay.checkpoints.checkpoint_file import (
    MAGIC,
    SLICE_BYTES,
    CheckpointReader,
    CheckpointWriter,
    SectionKind,
    verify,
)
from shmreplay.daemon.checkpoints.retention import Retention
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint


def write(path: pathlib.Path, label: str = "test", payloads: int = 3) -> list[int]:
    """Writes a file of the format, and returns where each of its sections begins."""
    borders = []
    with path.open("wb", buffering=0) as file:
        writer = CheckpointWriter(file.fileno())

        def note() -> None:
            borders.append(writer.num_bytes)

        note()
        writer.write_plain(SectionKind.MANIFEST, {"label": label, "arenas": [{"name": "a"}]})
        note()
        writer.write_plain(SectionKind.ARENA, {"arena": "a", "tables": []}, 0)
        for i in range(payloads):
            note()
            writer.write(SectionKind.ITEMS, np.arange(50 * (i + 1)).astype(np.uint8), 0, table=i)
        note()
        writer.write_plain(SectionKind.ARENA_END, {}, 0)
        note()
        writer.end()
    return borders


def test_what_was_written_is_read(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "c")
    reader = CheckpointReader(str(tmp_path / "c"))
    assert reader.manifest == {"label": "test", "arenas": [{"name": "a"}]}
    sections = []
    while (section := reader.next()).kind is not SectionKind.END:
        sections.append((section.kind, section.arena, section.table, section.payload.copy()))
    reader.close()
    assert [kind for kind, *_ in sections] == [SectionKind.ARENA, *[SectionKind.ITEMS] * 3, SectionKind.ARENA_END]
    assert [table for kind, _, table, _ in sections if kind is SectionKind.ITEMS] == [0, 1, 2]
    for i in range(3):
        np.testing.assert_array_equal(sections[1 + i][3], np.arange(50 * (i + 1)).astype(np.uint8))
    found = verify(str(tmp_path / "c"))
    assert found["num_bytes"] == (tmp_path / "c").stat().st_size
    assert found["states"] == [{"arena": "a", "tables": []}]


def test_every_truncation_is_found_and_names_section_and_offset(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    borders = write(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpoint) as error:
            verify(str(path))
        assert f"{path} is damaged" in str(error.value)
        if length >= 16:
            last = max(border for border in borders if border <= length)
            assert f"at offset {last}" in str(error.value)
            assert "it was cut off" in str(error.value)


@pytest.mark.long
def test_every_flipped_bit_is_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    write(path)
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        for bit in range(8):
            whole[at] ^= 1 << bit
            path.write_bytes(whole)
            with pytest.raises(DamagedCheckpoint):
                verify(str(path))
            whole[at] ^= 1 << bit


def test_bytes_after_the_end_are_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    write(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DamagedCheckpoint, match="1 more bytes follow"):
        verify(str(path))


def test_sections_that_are_exchanged_left_out_or_doubled_are_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    borders = write(path)
    whole = path.read_bytes()
    parts = [whole[a:b] for a, b in zip(borders, [*borders[1:], len(whole)], strict=True)]
    others = [
        [*parts[:2], parts[3], parts[2], *parts[4:]],
        [*parts[:2], *parts[3:]],
        [*parts[:3], *parts[2:]],
    ]
    for other in others:
        path.write_bytes(whole[: borders[0]] + b"".join(other))
        with pytest.raises(DamagedCheckpoint, match="is not that of the expected section"):
            verify(str(path))


def test_a_file_of_another_format_says_which_reads_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    crc = zlib.crc32(struct.pack("<8sII", MAGIC, 9, 0))
    path.write_bytes(struct.pack("<8sII", MAGIC, 9, crc))
    with pytest.raises(DamagedCheckpoint, match="has format 9, this shmreplay reads 1 to 3"):
        verify(str(path))


def test_another_programs_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(DamagedCheckpoint, match="it is no checkpoint of shmreplay"):
        verify(str(tmp_path / "c"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedCheckpoint, match="is not a regular file"):
        verify(str(tmp_path / "pipe"))
    with pytest.raises(FileNotFoundError):
        verify(str(tmp_path / "nothing"))


def test_a_section_that_claims_to_be_huge_takes_no_memory(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    write(path)
    head = path.read_bytes()[:16]
    for kind, size in ((SectionKind.ITEMS, SLICE_BYTES + 1), (SectionKind.MANIFEST, 2**60)):
        header = struct.pack("<4sHHQQII", b"SECT", kind, 0, 0, size, 0, 0)
        path.write_bytes(head + header)
        with pytest.raises(DamagedCheckpoint, match=f"its length is {size} bytes"):
            verify(str(path))


def test_a_manifest_that_is_no_map_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    for value, text in (([1], "it is no map"), ({"arenas": 3}, "it has no list of arenas")):
        with path.open("wb", buffering=0) as file:
            CheckpointWriter(file.fileno()).write_plain(SectionKind.MANIFEST, value)
        with pytest.raises(DamagedCheckpoint, match=text):
            verify(str(path))
    with path.open("wb", buffering=0) as file:
        CheckpointWriter(file.fileno()).write(
            SectionKind.MANIFEST, np.frombuffer(msgpack.packb({})[:0] + b"\xc1", np.uint8)
        )
    with pytest.raises(DamagedCheckpoint, match="it is no msgpack"):
        verify(str(path))


# --- the directory ---------------------------------------------------------------------------------------------------


def save(directory: CheckpointDirectory) -> str:
    with directory.create() as (fd, path):
        writer = CheckpointWriter(fd)
        writer.write_plain(SectionKind.MANIFEST, {"label": directory.label, "arenas": [{"name": "a"}]})
        writer.write_plain(SectionKind.ARENA, {"arena": "a", "tables": [{"name": "a"}]}, 0)
        writer.end()
    return path


def test_a_checkpoint_appears_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    directory = CheckpointDirectory(str(tmp_path / "new"), "test")
    with directory.create() as (fd, path):
        assert os.listdir(directory.path) == [os.path.basename(path) + PARTIAL]
        assert directory.checkpoints() == []
        os.write(fd, b"x")
    assert directory.checkpoints() == [path]
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_an_error_leaves_nothing(tmp_path: pathlib.Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), "test")
    with pytest.raises(OSError, match="full"), directory.create():
        raise OSError("full")
    assert os.listdir(tmp_path) == []


def test_checkpoints_sort_by_age_also_when_the_clock_was_set_back(tmp_path: pathlib.Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), "test")
    future = tmp_path / "shmreplay.test.29991231T235959999999Z.checkpoint"
    write(future)
    paths = [save(directory) for _ in range(3)]
    assert directory.checkpoints() == [*reversed(paths), str(future)]
    assert moment_of(paths[0]).year == 3000


def test_only_the_newest_are_kept_and_only_own_files_removed(tmp_path: pathlib.Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), "test")
    other = save(CheckpointDirectory(str(tmp_path), "other"))
    paths = [save(directory) for _ in range(5)]
    foreign = tmp_path / "shmreplay.test.20000101T000000000000Z.checkpoint"
    foreign.write_bytes(b"somebody's thesis")
    renamed = tmp_path / "shmreplay.test.20000101T000000000001Z.checkpoint"
    renamed.write_bytes(pathlib.Path(other).read_bytes())
    near = [tmp_path / name for name in ("shmreplay.test.checkpoint", "notes.txt", "shmreplay.test.1.checkpoint")]
    for path in near:
        path.write_bytes(b"")
    assert Retention(directory, 2).remove_old((), lambda: False) == []  # there before it
    keeping = Retention(directory, 2)
    keeping.comes_from_all()
    assert sorted(keeping.remove_old((), lambda: False)) == sorted(paths[:3])
    left = {str(path) for path in tmp_path.iterdir()}
    assert left == {other, *paths[3:], str(foreign), str(renamed), *map(str, near)}
    assert find_checkpoints(str(tmp_path), "other") == [other]


def test_what_a_killed_saver_left_is_removed_and_what_is_being_written_is_not(tmp_path: pathlib.Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), "test")
    for moment, content in (("20200101T000000000000Z", b""), ("20200101T000000000001Z", MAGIC + b"half")):
        (tmp_path / f"shmreplay.test.{moment}.checkpoint{PARTIAL}").write_bytes(content)
    foreign = tmp_path / f"shmreplay.test.20200101T000000000002Z.checkpoint{PARTIAL}"
    foreign.write_bytes(b"a download of another program")
    other = tmp_path / f"shmreplay.other.20200101T000000000003Z.checkpoint{PARTIAL}"
    other.write_bytes(b"")
    with directory.create() as (_, path):
        directory.remove_partial_files()
        assert {entry.name for entry in tmp_path.iterdir()} == {
            foreign.name,
            other.name,
            os.path.basename(path) + PARTIAL,
        }


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    directory = CheckpointDirectory(str(tmp_path / "file"), "test")
    with pytest.raises((CheckpointFailed, NotADirectoryError), match="file"), directory.create():
        pytest.fail("it was created")


def test_the_content_does_not_depend_on_the_moment_and_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    def write(name: str, moment: float, last: int) -> tuple[bytes, bytes]:
        path = tmp_path / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        writer = CheckpointWriter(fd)
        writer.write_plain(SectionKind.MANIFEST, {"created": moment, "arenas": [{}]})
        writer.write_plain(SectionKind.ARENA, {"moment": moment, "tables": []})
        writer.write(SectionKind.ITEMS, np.arange(8, dtype=np.uint8) * last)
        writer.end()
        os.close(fd)
        return writer.content.value(), verify(str(path))["content"]

    first, later, other = write("a", 1.0, 3), write("b", 2.0, 3), write("c", 2.0, 4)
    assert first[0] == first[1] == later[0] == later[1] != other[0]
