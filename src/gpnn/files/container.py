"""The model file as bytes: a JSON header, then arrays. What they mean is the business of `files.model`.

    at   0  magic      8 bytes   89 47 50 4E 4E 0D 0A 1A
    at   8  version    uint32    of this layout
    at  12  H          uint32    length of the header
    at  16  length     uint64    of the whole file
    at  24  digest     32 bytes  SHA-256 of bytes 0 … 23 and the header
    at  56  header     H bytes   JSON
    then    arrays     raw, each from a multiple of 64 on; zeros in between

Numbers are little-endian. Header and length are checked always, the arrays' CRC-32 (one for each 4 MiB, so that threads
can share the work) when asked. Arrays come back as read-only views of one mapping, which processes share.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import FileError, InvalidInputError
from gpnn.engines.parallel import blocks, for_each_block
from gpnn.files.whole import whole_or_nothing

VERSION = 1
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of taking a header at its word where it is not one that `write` made."""

_MAGIC = b"\x89GPNN\r\n\x1a"  # no text file begins like this, and a transfer that rewrites line ends breaks it
_FIXED = struct.Struct("<8sIIQ")
_HEADER_AT = _FIXED.size + hashlib.sha256().digest_size
_ALIGNMENT = 64
_BLOCK = 2**22
_LONGEST_HEADER = 2**24
_MOST_AXES = 8


class Header(NamedTuple):
    content: dict
    """As it is in the file: JSON, and nothing more is known of it."""
    end: int
    length: int
    """Of the whole file."""


def write(path: Path, content: dict, arrays: dict[str, NDArray], progress: str | None = None) -> None:
    """`content` (anything JSON can hold) and named arrays, all of them or, if anything fails, no file at all."""
    sums = _checksums(arrays, progress)
    table, end = {}, 0
    for name, array in arrays.items():
        table[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": end, "crc32": sums[name]}
        end = _aligned(end + array.nbytes)
    header = json.dumps({**content, "arrays": table}, allow_nan=False, separators=(",", ":")).encode()
    if len(header) > _LONGEST_HEADER:
        raise InvalidInputError(
            f"The header of {path} would take {len(header):,} bytes, more than {_LONGEST_HEADER:,}. Column names and "
            "categories are kept there: drop columns of free text or of identifiers."
        )
    arrays_at = _aligned(_HEADER_AT + len(header))
    fixed = _FIXED.pack(_MAGIC, VERSION, len(header), arrays_at + end)
    with whole_or_nothing(path) as unfinished, open(unfinished, "wb") as file:
        file.write((fixed + _digest(fixed, header) + header).ljust(arrays_at, b"\0"))
        for array in arrays.values():
            for part in _parts(array):
                file.write(part)
            file.write(bytes(_aligned(array.nbytes) - array.nbytes))
        file.flush()
        os.fsync(file.fileno())  # before the name changes: after a power cut, the name must not lead to nothing
    _sync_folder(path.parent)


def read_header(path: Path) -> Header:
    """The header alone, verified; the arrays are not looked at."""
    with _opened(path) as file:
        return _read_header(path, file)


def read(path: Path, verify: bool = True) -> tuple[dict, dict[str, NDArray]]:
    """The header's content and the arrays, as read-only views of one mapping.

    `verify=False` leaves out the arrays' checksums and is done at once, whatever their size.
    """
    with _opened(path) as file:
        header = _read_header(path, file)
        mapping = mmap.mmap(file.fileno(), header.length, access=mmap.ACCESS_READ)
    arrays, sums = {}, {}
    try:
        for name, entry, start, stop in _layout(header):
            arrays[name] = np.ndarray(tuple(entry["shape"]), entry["dtype"], buffer=mapping, offset=start)
            sums[name] = entry["crc32"]
            if any(mapping[stop : _aligned(stop)]):
                raise ValueError(f"bytes after the array {name} are not zero")
        if any(mapping[header.end : _aligned(header.end)]):
            raise ValueError("bytes after the header are not zero")
    except MALFORMED as error:
        raise damaged(path, f"its table of arrays is wrong ({error})") from error
    if verify:
        _verify(path, arrays, sums)
    return header.content, arrays


def verify(path: Path) -> None:
    """Raise unless the whole file is what was written. It is read once, a few megabytes at a time."""
    with _opened(path) as file:
        header = _read_header(path, file)
        for name, entry, start, stop in _layout(header):
            file.seek(start)
            sums = [zlib.crc32(file.read(min(_BLOCK, stop - at))) for at in range(start, stop, _BLOCK)]
            if sums != entry["crc32"]:
                raise damaged(path, f"the array {name} does not match its checksum")


def damaged(path: Path, what: str) -> FileError:
    return FileError(
        f"{path} cannot be used: {what}. It was damaged or altered after it was written. Copy it again from where it "
        "was made and compare the sizes, or fit and save the model again."
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def check_is_file(path: Path) -> None:
    if not path.is_file():  # opening a pipe would wait for ever
        raise FileError(
            f"{path} is not a file. Check the name and the folder; a model file is made by model.save(path)."
        )


def _opened(path: Path) -> BinaryIO:
    check_is_file(path)
    try:
        return open(path, "rb")
    except OSError as error:
        raise FileError(f"{path} cannot be opened: {error}. Check that you may read it.") from error


def _read_header(path: Path, file: BinaryIO) -> Header:
    size = os.fstat(file.fileno()).st_size
    start = file.read(_HEADER_AT)
    if not start.startswith(_MAGIC[: len(start)]) or not start:
        raise FileError(
            f"{path} is not a gpnn model file: its first bytes are {start[:8].hex(' ') or 'none at all'}. Check the "
            "name; model files are made by model.save(path) or `gpnn fit … --out`."
        )
    if len(start) < _HEADER_AT:
        raise damaged(path, f"it ends after {size} bytes")
    _, version, header_length, length = _FIXED.unpack_from(start)
    if version > VERSION:
        raise FileError(
            f"{path} is written in version {version} of the model file; this gpnn reads up to {VERSION}. Install a "
            "newer gpnn (pip install --upgrade gpnn), or save the model again with this one."
        )
    if length != size:
        raise damaged(path, f"it is {size:,} bytes long, and was {length:,} when it was written")
    if header_length > min(size - _HEADER_AT, _LONGEST_HEADER):
        raise damaged(path, f"its header cannot be {header_length:,} bytes long")
    text = file.read(header_length)
    if _digest(start[: _FIXED.size], text) != start[_FIXED.size :]:
        raise damaged(path, "the header does not match its checksum")
    if version < 1:
        raise damaged(path, f"there is no version {version} of the model file")
    try:
        content = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"the header is not JSON as gpnn writes it ({error})") from error
    if not isinstance(content, dict):
        raise damaged(path, "the header is not a JSON object")
    # Once there are older versions, what they say is put in today's words here.
    return Header(content, _HEADER_AT + header_length, length)


def _layout(header: Header) -> Iterator[tuple[str, dict, int, int]]:
    """Each array with where it begins and ends; ValueError unless they fill the file one after the other."""
    begin = end = _aligned(header.end)
    for name, entry in header.content["arrays"].items():
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{name} has the type {entry['dtype']!r:.40}")
        shape = entry["shape"]
        if len(shape) > _MOST_AXES or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"{name} has the shape {shape!s:.40}")
        start, stop = end, end + np.dtype(entry["dtype"]).itemsize * prod(shape)
        if entry["offset"] != start - begin or stop > header.length:
            raise ValueError(f"{name} is not where it should be")
        if len(entry["crc32"]) != len(range(start, stop, _BLOCK)):
            raise ValueError(f"{name} has {len(entry['crc32'])} checksums")
        end = _aligned(stop)
        yield name, entry, start, stop
    if end != header.length:
        raise ValueError("the arrays do not fill the file")


def _refuse(constant: str):
    raise ValueError(f"{constant} is not a number")


# --- checksums --------------------------------------------------------------------------------------------------------


def _digest(fixed: bytes, header: bytes) -> bytes:
    return hashlib.sha256(fixed + header).digest()


def _checksums(arrays: dict[str, NDArray], progress: str | None = None) -> dict[str, list[int]]:
    """CRC-32 of each 4 MiB of each array: quick in every language's library, and zlib's releases the lock."""
    sums = {name: [0] * len(range(0, array.nbytes, _BLOCK)) for name, array in arrays.items()}
    todo = [(name, k, part) for name, array in arrays.items() for k, part in enumerate(_parts(array))]

    def add_up(some: slice) -> None:
        for name, k, part in todo[some]:
            sums[name][k] = zlib.crc32(part)

    if sum(array.nbytes for array in arrays.values()) > 4 * _BLOCK:
        for_each_block(add_up, len(todo), 1, None, progress)
    else:  # done before threads have begun
        add_up(slice(None))
    return sums


def _verify(path: Path, arrays: dict[str, NDArray], expected: dict[str, list[int]]) -> None:
    for name, sums in _checksums(arrays).items():
        if sums != expected[name]:
            raise damaged(path, f"the array {name} does not match its checksum")


def _parts(array: NDArray) -> Iterator[memoryview]:
    raw = array.reshape(-1).view(np.uint8).data
    return (raw[part] for part in blocks(len(raw), _BLOCK))


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _sync_folder(folder: Path) -> None:
    """Make the new name last, where folders can be opened; elsewhere the system sees to it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
