"""ItemFile: items of a table in an .npz file that NumPy reads without pickle. docs/cli.md says what is in it."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import stat
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from shmreplay.base.dtypes import file_dtype
from shmreplay.columns import structure
from shmreplay.columns.item_structure import node_of
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import MissingPackage
from shmreplay.errors import ShmReplayError
from shmreplay.tables.packed_specs import pack_specs, unpack_specs
from shmreplay.tables.table import Table

FORMAT = 1
EXPORT_AGAIN = "export the items again"  # the advice for a file that is not as `shmreplay export` wrote it
PART_BYTES = 32 * 2**20  # read at a time
MOST_AT_A_TIME = 4096  # items
NO_STEP, REPEATED, NO_ROW = -1, -2, -3  # in `shows`; the first two are the core's values
MOST_OF_HEAD = 2**20  # values of an array that describes the others
NUMBERS = {
    "keys": np.int64,
    "priorities": np.float64,
    "times_sampled": np.int64,
    "ages": np.int64,
    "episodes": np.int64,
    "steps": np.int64,
    "num_steps": np.int32,
}


@dataclass(frozen=True)
class ItemFileLayout:
    """The structure of items: how `names` nests outputs, and each output's column and whether it has no step axis."""

    names: bytes
    columns: tuple[int, ...]
    squeezed: tuple[bool, ...]

    def paths(self, signature: Signature) -> list[str]:
        """The names of the outputs."""
        return list(structure.leaf_paths(node_of(self.names) if self.names else signature.root))


# The errors that zipfile raises for damaged files and other files.
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class GrowingArray:
    """An array in a temporary file that grows along its first axis. The other axes are padded when it is written."""

    def __init__(self, directory: str, dtype: np.dtype[Any], fill: int = 0) -> None:
        self._dtype = file_dtype(dtype)  # the table's specs in the file have the dtype itself
        self._fill = fill
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # closed in close()
        self._shapes: list[tuple[int, ...]] = []

    def add(self, rows: NDArray[Any]) -> None:
        """Appends rows, `[n, ...]`."""
        self._shapes.append(rows.shape)
        self._file.write(np.ascontiguousarray(rows).view(np.uint8).data if rows.size else b"")

    def write(self, to: IO[bytes]) -> None:
        """Writes the array as .npy."""
        rest = np.max([shape[1:] for shape in self._shapes], axis=0).astype(int).tolist() if self._shapes else []
        shape = (sum(shape[0] for shape in self._shapes), *rest)
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_2_0(to, header)
        self._file.seek(0)
        for part in self._shapes:
            rows = np.frombuffer(self._file.read(int(np.prod(part)) * self._dtype.itemsize), self._dtype).reshape(part)
            if list(part[1:]) != rest:
                padded = np.zeros((part[0], *rest), self._dtype)
                if self._fill != 0:
                    padded.fill(self._fill)
                padded[tuple(slice(size) for size in part)] = rows
                rows = padded
            to.write(rows.tobytes())

    def close(self) -> None:
        self._file.close()


def write_items(
    file: IO[bytes], table: Table, layout: ItemFileLayout, columns: dict[str, GrowingArray], *, is_compressed: bool
) -> None:
    """Writes a file of items. The names of the columns are those of its arrays."""
    heads: dict[str, NDArray[Any]] = {
        "format": np.array([FORMAT], np.int64),
        "table": np.frombuffer(pack_specs([table]), np.uint8),
        "names": np.frombuffer(layout.names, np.uint8),
        "outputs": np.array(layout.paths(table.sig) if layout.columns else [], np.str_),
        "columns": np.array(layout.columns, np.int64),
        "squeezed": np.array(layout.squeezed, np.bool_),
    }
    how = zipfile.ZIP_DEFLATED if is_compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", how, compresslevel=1 if is_compressed else None) as archive:
        for name, value in heads.items():
            with archive.open(f"{name}.npy", "w") as member:
                npy.write_array(member, value, allow_pickle=False)
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                column.write(member)


class Member:
    """An array of the file, read from its beginning to its end."""

    def __init__(self, file: IO[bytes], num_bytes: int, where: str) -> None:
        self._file, self._where = file, where
        try:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            self.shape, is_fortran, self.dtype = read(file)
        except (ValueError, tokenize.TokenError) as error:
            raise ValueError(f"{where}: is no array of NumPy's: {error}") from error
        if is_fortran or self.dtype.hasobject:
            raise ValueError(f"{where}: expected an array in C order of plain numbers")
        has = num_bytes - file.tell()
        if min(self.shape, default=0) < 0 or math.prod(self.shape) * self.dtype.itemsize != has:
            raise ValueError(f"{where}: has {has} bytes for shape {self.shape} of {self.dtype}")
        self._left = self.shape[0] if self.shape else 0

    def expect(self, shape: Sequence[int | None]) -> None:
        """Raises ValueError unless the array has this shape; None means any size."""
        if len(shape) != len(self.shape) or any(
            size not in (None, has) for size, has in zip(shape, self.shape, strict=True)
        ):
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{self._where}: has shape {self.shape}; expected ({sizes})")

    def parts(self, num_bytes: int) -> Iterator[NDArray[Any]]:
        """The array, in parts of about so many bytes, at least one row each."""
        n = max(1, num_bytes // max(1, math.prod(self.shape[1:]) * self.dtype.itemsize))
        while self._left > 0:
            yield self.read(min(n, self._left))

    def read(self, n: int) -> NDArray[Any]:
        """The next n rows, `[n, ...]`. Raises ValueError if there are fewer."""
        shape = (n, *self.shape[1:])
        if n > self._left:
            raise ValueError(f"{self._where}: has {self._left} rows more; {n} are asked for")
        self._left -= n
        found = self._file.read(math.prod(shape) * self.dtype.itemsize)
        return np.frombuffer(found, self.dtype).reshape(shape)


class ItemFile:
    """A file that `write_items` wrote, read part by part.

    Attributes:
        table: the table whose items these are.
        layout: their structure.
        path: of the file.
    """

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive, self.path = archive, path
        if (version := self._head("format", np.int64).tolist()) != [FORMAT]:
            raise ValueError(f"{path}: has format {version}; this version of shmreplay reads {FORMAT}")
        (self.table,) = unpack_specs(self._head("table", np.uint8).tobytes())
        columns, squeezed = self._head("columns", np.int64).tolist(), self._head("squeezed", np.bool_).tolist()
        self.layout = ItemFileLayout(self._head("names", np.uint8).tobytes(), tuple(columns), tuple(squeezed))
        num_leaves = len(self.table.sig.leaves)
        if len(columns) != len(squeezed) or not all(0 <= column < num_leaves for column in columns):
            raise ValueError(f"{path}: its outputs are not those of its table")
        self.paths = self.layout.paths(self.table.sig) if columns else []
        if len(self.paths) != len(columns):
            raise ValueError(f"{path}: its outputs are not those of its table")
        keys = self._present("keys", np.int64)
        keys.expect((None,))
        self._num_items = keys.shape[0]
        for name, dtype in NUMBERS.items():
            self._present(name, dtype).expect((len(self),))

    def __len__(self) -> int:
        return self._num_items

    @functools.cached_property
    def numbers(self) -> dict[str, NDArray[Any]]:
        """The numbers of all items, by the names in `NUMBERS`."""
        return {name: self._present(name, dtype).read(len(self)) for name, dtype in NUMBERS.items()}

    def verify(self) -> None:
        """Reads the whole file. Raises ShmReplayError unless all checksums are right."""
        with _none_told(self.path):
            if (damaged := self._archive.testzip()) is not None:
                raise ValueError(f"{damaged} in it is damaged")

    def member(self, name: str, dtype: np.dtype[Any] | None = None) -> Member | None:
        """The array of that name, if the file has one. Raises ValueError if it has another dtype."""
        try:
            num_bytes = self._archive.getinfo(f"{name}.npy").file_size
            file = self._archive.open(f"{name}.npy")
        except KeyError:
            return None
        member = Member(file, num_bytes, f"{self.path}, {name!r}")
        wanted = None if dtype is None else file_dtype(dtype)
        if wanted is not None and member.dtype not in (wanted, dtype):
            raise ValueError(f"{self.path}, {name!r}: is {member.dtype}; expected {dtype}")
        return member

    def _present(self, name: str, dtype: Any) -> Member:
        member = self.member(name, np.dtype(dtype))
        if member is None:
            raise ValueError(f"{self.path}: has no array {name!r}")
        return member

    def _head(self, name: str, dtype: Any) -> NDArray[Any]:
        member = self._present(name, dtype)
        member.expect((None,))
        if member.shape[0] > MOST_OF_HEAD:
            raise ValueError(f"{self.path}, {name!r}: has {member.shape[0]} values; expected {MOST_OF_HEAD} at most")
        return member.read(member.shape[0])


@contextlib.contextmanager
def _none_told(path: str) -> Iterator[None]:
    """Turns errors about a file into ShmReplayError, which says that it is not a file of items."""
    try:
        yield
    except MissingPackage:
        raise
    except (*_NO_ARCHIVE, ValueError, TypeError) as error:
        raise ShmReplayError(f"{path} is no file of items, as `shmreplay export` writes them: {error}") from error


@contextlib.contextmanager
def open_items(path: str) -> Iterator[ItemFile]:
    """Opens a file of items. Reads only what describes them; `verify` reads the rest.

    Raises:
        ShmReplayError: `shmreplay export` did not write it, or it cannot be read.
    """
    with contextlib.ExitStack() as opened:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # anything else may have no end
                raise ShmReplayError(f"{path} is no regular file; expected one that `shmreplay export` wrote")
            file = opened.enter_context(open(path, "rb"))
        except OSError as error:
            raise ShmReplayError(f"{path} cannot be read: {error.strerror}") from error
        with _none_told(path):
            items = ItemFile(opened.enter_context(zipfile.ZipFile(file)), path)
        yield items
