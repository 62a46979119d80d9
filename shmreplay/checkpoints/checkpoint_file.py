"""The file format of checkpoints: sections, each with a checksum of all its bytes.

    magic 8 | format version u32 | crc u32                                            16 bytes
    section: "SECT" | kind u16 | arena u16 | number u64 | bytes u64 | table u32 | crc u32, then its bytes
    ...
    the end section, and nothing after it

Numbers are little-endian. Sections are numbered from 0, so a missing or repeated one is noticed. The checksum is CRC-32
(zlib) of the section's header, with zeros in place of the checksum, and its bytes. docs/checkpoints.md says what each
kind has.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, BinaryIO

import msgpack
import numpy as np
import numpy.typing as npt

from shmreplay.errors import DamagedCheckpoint

FORMAT_VERSION = 3
# In version 1 every compressed row was stored by itself, which is still one of the possible forms. In versions 1 and 2
# no chunk's last row was repeated as the first of the next chunk.
READABLE_VERSIONS = (1, 2, 3)
MAGIC = b"SHMRCKPT"
SLICE_BYTES = 4 * 2**20  # largest section of records
MAX_PLAIN_BYTES = 64 * 2**20  # largest section of msgpack
MARK = b"SECT"
_PREAMBLE = struct.Struct("<8sII")
_HEADER = struct.Struct("<4sHHQQII")
_CONTENT = struct.Struct("<HHII")
_LIMITS: dict[str, Any] = {"max_array_len": 2**20, "max_map_len": 2**20}

Bytes = npt.NDArray[np.uint8]


class SectionKind(IntEnum):
    """The kind of a section. Those of records are the core's part numbers plus RECORDS."""

    MANIFEST = 1
    ARENA = 2
    ARENA_END = 3
    END = 4
    PIECES = 16
    ITEMS = 17
    FREE_SLOTS = 18
    CHUNKS = 19


RECORDS = SectionKind.PIECES


@dataclass(frozen=True)
class Section:
    """A section that was read. The next one overwrites `payload`."""

    kind: SectionKind
    arena: int
    number: int
    table: int
    offset: int  # of its header in the file
    crc: int
    payload: Bytes

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"section {self.number} ({self.kind.name.lower()}) at offset {self.offset}"


class Content:
    """A digest of what a checkpoint says of its tables. Times do not count, so two of the same tables are equal.

    It is made of the sections' checksums, so two contents that differ are equal once in 2^32 times.
    """

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, kind: int, arena: int, table: int, crc: int) -> None:
        """Adds a section of records."""
        self._digest.update(_CONTENT.pack(kind, arena, table, crc))

    def add_plain(self, kind: int, arena: int, value: Mapping[str, Any]) -> None:
        """Adds a section of msgpack. When it was written does not count."""
        timeless = {name: value[name] for name in sorted(value) if name not in ("created", "moment")}
        packed: bytes = msgpack.packb(timeless, use_bin_type=True)
        self.add(kind, arena, 0, zlib.crc32(packed))

    def value(self) -> bytes:
        return self._digest.digest()


class CheckpointWriter:
    """Writes sections to a descriptor, which the caller closes."""

    def __init__(self, fd: int) -> None:
        self.content = Content()
        self._fd = fd
        self._number = 0
        self._crc = 0
        self.num_bytes = 0
        preamble = _PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0)
        self._write(_PREAMBLE.pack(MAGIC, FORMAT_VERSION, zlib.crc32(preamble)))

    def write_plain(self, kind: SectionKind, value: object, arena: int = 0) -> None:
        """Writes a value as msgpack. Raises OSError as write(2) does."""
        self.write(kind, np.frombuffer(msgpack.packb(value, use_bin_type=True), np.uint8), arena)
        if kind is not SectionKind.END and isinstance(value, Mapping):
            self.content.add_plain(kind, arena, value)

    def write(self, kind: SectionKind, payload: Bytes, arena: int = 0, table: int = 0) -> None:
        """Writes a section. Raises OSError as write(2) does."""
        header = _HEADER.pack(MARK, kind, arena, self._number, payload.nbytes, table, 0)
        crc = zlib.crc32(payload.data, zlib.crc32(header))
        self._write(_HEADER.pack(MARK, kind, arena, self._number, payload.nbytes, table, crc))
        self._write(payload.data)
        self._crc = zlib.crc32(crc.to_bytes(4, "little"), self._crc)
        self._number += 1
        if kind >= RECORDS:
            self.content.add(kind, arena, table, crc)

    def end(self) -> None:
        """Writes the end section: the number of sections, and a checksum of their checksums."""
        self.write_plain(SectionKind.END, {"sections": self._number, "crc": self._crc})

    def _write(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]
        self.num_bytes += len(data)


class CheckpointReader:
    """Reads the sections in order, all into the same memory. Every method raises DamagedCheckpoint if it finds damage.

    The constructor reads the manifest. `progress` is called with the bytes read so far; an exception ends the reading.
    """

    def __init__(self, path: str, progress: Callable[[int], None] | None = None) -> None:
        self.path = path
        self._progress = progress
        self._buffer: Bytes = np.empty(SLICE_BYTES, np.uint8)
        self._number = 0
        self._crc = 0
        self._at = "its beginning"
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not keep us
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise DamagedCheckpoint(f"{path} is not a regular file, so it is not a checkpoint")
        self._file: BinaryIO = open(fd, "rb", buffering=0)  # noqa: SIM115
        try:
            self.num_bytes = status.st_size
            self._read_preamble()
            self.manifest = self._read_manifest()
        except BaseException:
            self._file.close()
            raise

    def damaged(self, reason: str) -> DamagedCheckpoint:
        """Makes the error, which names the file and the section read last."""
        return DamagedCheckpoint(f"checkpoint {self.path} is damaged: {self._at}: {reason}")

    def _read_preamble(self) -> None:
        preamble = self._exactly(_PREAMBLE.size)
        magic, version, crc = _PREAMBLE.unpack(preamble)
        if magic != MAGIC:
            raise self.damaged("it is no checkpoint of shmreplay")
        if crc != zlib.crc32(_PREAMBLE.pack(magic, version, 0)):
            raise self.damaged("the checksum of its first bytes is wrong")
        if version not in READABLE_VERSIONS:
            readable = f"{READABLE_VERSIONS[0]} to {READABLE_VERSIONS[-1]}"
            raise DamagedCheckpoint(
                f"checkpoint {self.path} has format {version}, this shmreplay reads {readable}; "
                "read it with the version that wrote it"
            )

    def _read_manifest(self) -> dict[str, Any]:
        section = self.next()
        if section.kind is not SectionKind.MANIFEST:
            raise self.damaged("expected the manifest")
        manifest = self.plain(section)
        if not isinstance(manifest.get("arenas"), list):
            raise self.damaged("it has no list of arenas")
        return manifest

    def next(self) -> Section:
        """The next section, whole. After the end section there is none."""
        offset = self._file.tell()
        self._at = f"section {self._number} at offset {offset}"
        raw = self._exactly(_HEADER.size)
        mark, kind, arena, number, num_bytes, table, crc = _HEADER.unpack(raw)
        if mark != MARK or number != self._number:
            raise self.damaged("its header is not that of the expected section")
        if kind not in SectionKind.__members__.values():
            raise self.damaged(f"it is of unknown kind {kind}")
        if num_bytes > (SLICE_BYTES if kind >= RECORDS else MAX_PLAIN_BYTES):
            raise self.damaged(f"its length is {num_bytes} bytes, which is too long")
        section = Section(SectionKind(kind), arena, number, table, offset, crc, self._payload(num_bytes))
        self._at = section.name
        if (
            zlib.crc32(section.payload.data, zlib.crc32(_HEADER.pack(mark, kind, arena, number, num_bytes, table, 0)))
            != crc
        ):
            raise self.damaged("its checksum is wrong")
        if section.kind is SectionKind.END:
            self._check_end(section)
        self._crc = zlib.crc32(crc.to_bytes(4, "little"), self._crc)
        self._number += 1
        if self._progress is not None:
            self._progress(self._file.tell())
        return section

    def _payload(self, num_bytes: int) -> Bytes:
        if num_bytes > self.num_bytes - self._file.tell():  # checked before memory is allocated
            raise self._cut_off()
        buffer = self._buffer if num_bytes <= SLICE_BYTES else np.empty(num_bytes, np.uint8)
        payload = buffer[:num_bytes]
        self._fill(payload.data)
        return payload

    def _check_end(self, section: Section) -> None:
        found = self.plain(section)
        if (found.get("sections"), found.get("crc")) != (self._number, self._crc):
            raise self.damaged("it does not belong to the sections before it")
        if self._file.tell() != self.num_bytes:
            raise self.damaged(f"{self.num_bytes - self._file.tell()} more bytes follow")

    def plain(self, section: Section) -> dict[str, Any]:
        """The map in a section of msgpack."""
        try:
            value = msgpack.unpackb(section.payload.tobytes(), raw=False, strict_map_key=True, **_LIMITS)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise self.damaged(f"it is no msgpack: {error or type(error).__name__}") from error
        if not isinstance(value, dict):
            raise self.damaged("it is no map")
        return value

    def _exactly(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, left: memoryview) -> None:
        while left:
            try:
                num_read = self._file.readinto(left)  # type: ignore[attr-defined]
            except OSError as error:  # for example a bad sector
                raise self.damaged(f"it cannot be read: {error}") from error
            if not num_read:
                raise self._cut_off()
            left = left[num_read:]

    def _cut_off(self) -> DamagedCheckpoint:
        return self.damaged(f"the file ends in it, after {self.num_bytes} bytes; it was cut off")

    def close(self) -> None:
        self._file.close()


def verify(path: str, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Reads a whole checkpoint. Returns its manifest, with `num_bytes`, `content`, and `states`, one an arena.

    Raises DamagedCheckpoint, which names section and offset; OSError if the file cannot be opened.
    """
    reader = CheckpointReader(path, progress)
    try:
        states: list[dict[str, Any]] = []
        content = Content()
        content.add_plain(SectionKind.MANIFEST, 0, reader.manifest)
        while (section := reader.next()).kind is not SectionKind.END:
            if section.kind >= RECORDS:
                content.add(section.kind, section.arena, section.table, section.crc)
                continue
            value = reader.plain(section)
            content.add_plain(section.kind, section.arena, value)
            if section.kind is SectionKind.ARENA:
                states.append(value)
        if len(states) != len(reader.manifest["arenas"]):
            raise reader.damaged(f"there are {len(states)} arenas, the manifest says {len(reader.manifest['arenas'])}")
        return {**reader.manifest, "num_bytes": reader.num_bytes, "content": content.value(), "states": states}
    finally:
        reader.close()
