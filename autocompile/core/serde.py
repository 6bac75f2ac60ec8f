"""Records to JSON and back: the only form in which anything crosses a process boundary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """Base of all records: immutable, compared by value, plain JSON, units in the names."""


def to_json(record: Any, *, indent: int | None = None) -> bytes:
    """Encode a record; floats that JSON has no word for become null."""
    encoded = msgspec.json.encode(record)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def to_plain(record: Record) -> dict[str, Any]:
    """A record as what reading its JSON gives: dictionaries, lists, texts and numbers."""
    plain: dict[str, Any] = msgspec.json.decode(to_json(record))
    return plain


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Decode and check; raises msgspec.ValidationError (or DecodeError) naming the offending field."""
    return msgspec.json.decode(data, type=kind)


def from_plain(plain: dict[str, Any], kind: type[T]) -> T:
    """The record that `to_plain` was given. Raises msgspec.ValidationError naming the offending field."""
    return msgspec.convert(plain, kind)


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, then rename: a killed writer leaves the old content or the new, never half."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.write_bytes(data)
    os.replace(beside, path)
