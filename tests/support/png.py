"""Reads PNG files as strictly as the tests want them."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def read_png(file: bytes) -> NDArray[np.uint8]:
    """The pixels, `[H, W, C]`, of a file without filters; every checksum looked at."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(file):
        (size,), name = struct.unpack(">I", file[at : at + 4]), file[at + 4 : at + 8]
        body = file[at + 8 : at + 8 + size]
        assert struct.unpack(">I", file[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + body),)
        parts[name] = body
        at += 12 + size
    width, height, depth, color, *_ = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert depth == 8
    channels = {0: 1, 2: 3, 6: 4}[color]
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels)
