"""ItemFile: items of a table in an .npz file that NumPy reads without pickle. docs/cli.md says what is in it."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from shmreplay import structure
from shmreplay.errors import ShmReplayError
from shmreplay.item_structure import node_of
from shmreplay.signature import Signature
from shmreplay.tables import Table, pack_specs, unpack_specs

FORMAT = 1
EXPORT_AGAIN = "export the items again"  # to whoever has a file that is not as `shmreplay export` wrote it
PART_BYTES = 32 * 2**20  # read at a time
MOST_AT_A_TIME = 4096  # items
NO_STEP, REPEATED, NO_ROW = -1, -2, -3  # in `shows`; the first two as the core has them
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
class Layout:
    """How items are structured: what `names` nests, and of each output its column and whether it has no step axis."""

    names: bytes
    columns: tuple[int, ...]
    squeezed: tuple[bool, ...]

    def paths(self, signature: Signature) -> list[str]:
        """The outputs' names."""
        return list(structure.leaf_paths(node_of(self.names) if self.names else signature.root))


# What zipfile raises for files that it did not write.
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class GrowingArray:
    """An array that grows along its first axis, in a temporary file; along the others it is padded at the end."""

    def __init__(self, directory: str, dtype: np.dtype[Any], fill: int = 0) -> None:
        # What other libraries define has no name in a file; the table's specs have it.
        self._dtype = np.dtype(f"V{dtype.itemsize}") if dtype.kind == "V" else dtype
        self._fill = fill
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # closed in close()
        self._shapes: list[tuple[int, ...]] = []

    def add(self, rows: NDArray[Any]) -> None:
        """Appends rows, `[n, ...]`."""
        self._shapes.append(rows.shape)
        self._file.write(np.ascontiguousarray(rows).view(np.uint8).data if rows.size else b"")

    def write(self, to: IO[bytes]) -> None:
        """Writes all of it as .npy."""
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
    file: IO[bytes], table: Table, layout: Layout, columns: dict[str, GrowingArray], *, is_compressed: bool
) -> None:
    """Writes a file of these columns, whose names are those of its arrays."""
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
    """An array of the file, read from its beginning on."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where = file, where
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        self.shape, is_fortran, self.dtype = read(file)
        if is_fortran or self.dtype.hasobject:
            raise ValueError(f"{where}: expected an array in C order of plain numbers")

    def read(self, n: int) -> NDArray[Any]:
        """The next n rows, `[n, ...]`. Raises ValueError where the file ends before."""
        shape = (n, *self.shape[1:])
        num_bytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        found = self._file.read(num_bytes)
        if len(found) != num_bytes:
            raise ValueError(f"{self._where}: it ends within its rows")
        return np.frombuffer(found, self.dtype).reshape(shape)


class ItemFile:
    """A file that `write_items` wrote, to be read part by part.

    Attributes:
        table: the table whose items these are.
        layout: their structure.
        path: of the file.
        numbers: what there is a number of for each item, by the names of `NUMBERS`.
    """

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive, self.path = archive, path
        if (version := self._head("format", np.int64).tolist()) != [FORMAT]:
            raise ValueError(f"{path}: has format {version}; this version of shmreplay reads {FORMAT}")
        (self.table,) = unpack_specs(self._head("table", np.uint8).tobytes())
        columns, squeezed = self._head("columns", np.int64).tolist(), self._head("squeezed", np.bool_).tolist()
        self.layout = Layout(self._head("names", np.uint8).tobytes(), tuple(columns), tuple(squeezed))
        num_leaves = len(self.table.sig.leaves)
        if len(columns) != len(squeezed) or not all(0 <= column < num_leaves for column in columns):
            raise ValueError(f"{path}: its outputs are not those of its table")
        self.paths = self.layout.paths(self.table.sig) if columns else []
        if len(self.paths) != len(columns):
            raise ValueError(f"{path}: its outputs are not those of its table")
        self.numbers = {name: self._head(name, dtype) for name, dtype in NUMBERS.items()}
        if {values.shape for values in self.numbers.values()} != {(len(self),)}:
            raise ValueError(f"{path}: its arrays are not of the same number of items")

    def __len__(self) -> int:
        return len(self.numbers["keys"])

    def member(self, name: str, dtype: np.dtype[Any] | None = None) -> Member | None:
        """An array that goes with the items, if the file has one of that name. Raises ValueError for another dtype."""
        try:
            file = self._archive.open(f"{name}.npy")
        except KeyError:
            return None
        member = Member(file, f"{self.path}, {name!r}")
        if dtype is not None and (member.dtype.itemsize, member.dtype.kind) not in (
            (dtype.itemsize, dtype.kind),
            (dtype.itemsize, "V"),
        ):
            raise ValueError(f"{self.path}, {name!r}: is {member.dtype}; expected {dtype}")
        return member

    def _head(self, name: str, dtype: Any) -> NDArray[Any]:
        member = self.member(name, np.dtype(dtype))
        if member is None:
            raise ValueError(f"{self.path}: has no array {name!r}")
        return member.read(member.shape[0])


@contextlib.contextmanager
def open_items(path: str) -> Iterator[ItemFile]:
    """The items of a file, all of whose checksums are right.

    Raises:
        ShmReplayError: it is none that `shmreplay export` wrote.
        OSError: it cannot be read.
    """
    with contextlib.ExitStack() as opened:
        try:
            archive = opened.enter_context(zipfile.ZipFile(path))
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} in it is damaged")
            items = ItemFile(archive, path)
        except (*_NO_ARCHIVE, ValueError, TypeError) as error:
            raise ShmReplayError(f"{path} is no file of items, as `shmreplay export` writes them: {error}") from error
        yield items
