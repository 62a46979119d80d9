"""StepCodec: converts a step of a table without a signature to bytes that describe themselves, and back.

The bytes are msgpack: None, bools, ints, floats, str, bytes, lists and dicts with str keys are stored as such. A tuple
is a map with the single key 0. A numpy array or scalar is an extension: its dtype's name, its shape, and its bytes.
Decoding never executes anything.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import numpy as np

from shmreplay.columns.codecs import Array, Bytes, DamagedBytes
from shmreplay.columns.specs import dtype_of
from shmreplay.columns.structure import MAX_DEPTH

_ARRAY, _SCALAR = 1, 2
_TUPLE_KEY = 0  # never a key of a dict, whose keys are str
_PLAIN = (type(None), bool, float, str, bytes)
_INT_LOW, _INT_HIGH = -(2**63), 2**64 - 1
_MAX_BYTES = 2**32 - 2  # of msgpack's extensions, and of what the heap can count
_EXPECTED = "expected numbers, bools, None, str, bytes, numpy arrays, and lists, tuples and dicts of them"


class StepCodec:
    """The codec of whole steps of any structure."""

    def encode(self, step: object) -> Bytes:
        """Returns the bytes of a step.

        Raises:
            ValueError: a part of it cannot be stored; the text names its path.
        """
        packable = _packable(step, "", 0)
        try:
            packed = msgpack.packb(packable)
        except UnicodeEncodeError as error:
            raise ValueError(f"{_unencodable(step, '')}, which UTF-8 does not have; store it as bytes") from error
        if len(packed) > _MAX_BYTES:
            raise ValueError(f"step has {len(packed)} bytes; expected at most {_MAX_BYTES}")
        return np.frombuffer(packed, np.uint8)

    def decode(self, stored: Bytes) -> Any:
        """Returns the step that `encode` was given, in memory of its own.

        Never allocates more memory than these bytes can expand to, even if they are damaged.

        Raises:
            DamagedBytes: these are not the bytes of a step.
        """
        try:
            return msgpack.unpackb(
                stored.tobytes(), ext_hook=_read_extension, object_hook=_read_map, strict_map_key=False
            )
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException, struct.error) as error:
            raise DamagedBytes(f"{stored.size} stored bytes that are no step ({error})") from error


def _packable(value: object, path: str, depth: int) -> object:
    """Converts a value for msgpack. Accepts exact types only, so that decoding returns the same types."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return _checked_int(value, path)  # type: ignore[arg-type]  # an int, as just seen
    if depth > MAX_DEPTH:
        raise ValueError(f"{_at(path[:40])} is nested deeper than {MAX_DEPTH} levels; make it flatter")
    if kind is list or kind is tuple:
        parts = [_packable(part, f"{path}[{i}]", depth + 1) for i, part in enumerate(value)]  # type: ignore[arg-type, var-annotated]
        return parts if kind is list else {_TUPLE_KEY: parts}
    if kind is dict:
        return _packable_dict(value, path, depth)  # type: ignore[arg-type]  # a dict, as just seen
    if isinstance(value, np.generic) or kind is np.ndarray:
        return _packed_array(value, path)  # type: ignore[arg-type]  # an array or a scalar, as just seen
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    raise ValueError(f"{_at(path)} is of type {name}; {_EXPECTED}")


def _checked_int(value: int, path: str) -> int:
    if not _INT_LOW <= value <= _INT_HIGH:
        raise ValueError(f"{_at(path)} is an int of {value.bit_length()} bits; expected one of at most 64")
    return value


def _packable_dict(value: dict[object, object], path: str, depth: int) -> dict[str, object]:
    parts: dict[str, object] = {}
    for key, part in value.items():
        if type(key) is not str:
            raise ValueError(f"{_at(path)} has the key {key!r:.100}; expected keys of type str")
        parts[key] = _packable(part, f"{path}/{key}" if path else key, depth + 1)
    return parts


def _unencodable(value: object, path: str) -> str | None:
    """Says where the first str with a lone surrogate is; None if there is none."""
    if isinstance(value, str):
        return None if _is_encodable(value) else f"{_at(path)} is a str with a lone surrogate"
    if isinstance(value, dict):
        for key, part in value.items():
            if not _is_encodable(key):
                return f"{_at(path)} has the key {key!a:.100} with a lone surrogate"
            if found := _unencodable(part, f"{path}/{key}" if path else key):
                return found
    if isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            if found := _unencodable(part, f"{path}[{i}]"):
                return found
    return None


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _packed_array(value: Array | np.generic, path: str) -> msgpack.ExtType:
    try:
        dtype = dtype_of(value.dtype)
    except TypeError as error:
        raise ValueError(f"{_at(path)}: {error}") from error
    name = dtype.name.encode("ascii")
    if value.nbytes > _MAX_BYTES:
        raise ValueError(f"{_at(path)} has {value.nbytes} bytes; expected less than 4 GiB")
    head = struct.pack(f"<BB{len(name)}s{value.ndim}Q", len(name), value.ndim, name, *value.shape)
    return msgpack.ExtType(_ARRAY if isinstance(value, np.ndarray) else _SCALAR, head + value.tobytes())


def _read_extension(code: int, payload: bytes) -> Array | np.generic:
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"extension {code}")
    num_name, ndim = struct.unpack_from("<BB", payload)
    name, *shape = struct.unpack_from(f"<{num_name}s{ndim}Q", payload, 2)
    dtype = dtype_of(name.decode("ascii"))
    begin = 2 + num_name + 8 * ndim
    if math.prod(shape) * dtype.itemsize != len(payload) - begin:
        raise ValueError(f"an array of {len(payload) - begin} bytes for {dtype.name} {tuple(shape)}")
    array: Array = np.frombuffer(bytearray(payload[begin:]), np.uint8).view(dtype).reshape(shape)
    return array[()] if code == _SCALAR else array


def _read_map(found: dict[Any, Any]) -> Any:
    if list(found) == [_TUPLE_KEY] and isinstance(found[_TUPLE_KEY], list):
        return tuple(found[_TUPLE_KEY])
    if not all(type(key) is str for key in found):
        raise ValueError(f"a map with the keys {list(found)!r:.100}")
    return found


def _at(path: str) -> str:
    return path or "step"
