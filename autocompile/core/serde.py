"""Conversion of records to JSON and back. Data cross process boundaries only in this form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """Base class of all records: immutable, compared by value, convertible to JSON, with units in the field names."""


def to_json(record: Any, *, indent: int | None = None) -> bytes:
    """Encode a record. Floats that JSON cannot represent (NaN, infinity) become null."""
    encoded = msgspec.json.encode(record)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def to_plain(record: Record) -> dict[str, Any]:
    """Convert a record to dicts, lists, strings and numbers, as if its JSON had been read."""
    plain: dict[str, Any] = msgspec.json.decode(to_json(record))
    return plain


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Decode and validate. Raises msgspec.ValidationError (or DecodeError) that names the invalid field."""
    return msgspec.json.decode(data, type=kind)


def from_plain(plain: dict[str, Any], kind: type[T]) -> T:
    """Convert the result of `to_plain` to a record. Raises msgspec.ValidationError that names the invalid field."""
    return msgspec.convert(plain, kind)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file next to `path`, then rename it, so that a killed writer never leaves half the content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.write_bytes(data)
    os.replace(beside, path)
