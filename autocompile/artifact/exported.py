"""The directory of an exported file: whether it may be written, and how it is written as a whole. No torch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from autocompile.core.errors import OutputConflict
from autocompile.core.export import Export
from autocompile.core.serde import from_json, to_json

RECORD, README = "export.json", "README.md"
# Present if the example was imported from the directory.
_BYTECODE = "__pycache__"
_ELSEWHERE = "choose another directory, or empty this one"


def check_export_directory(directory: Path) -> None:
    """Raise OutputConflict if the directory is not writable, or contains anything but an earlier export."""
    if directory.resolve() == Path.cwd():
        raise OutputConflict("is the current directory", where=str(directory), remedy="give a separate directory")
    if directory.exists():
        if not directory.is_dir():
            raise OutputConflict("is a file", where=str(directory), remedy="choose another directory")
        strange = sorted({entry.name for entry in _entries(directory)} - _names_of(directory))
        if strange:
            raise OutputConflict(f"contains something else ({strange[0]})", where=str(directory), remedy=_ELSEWHERE)
    parent = next(parent for parent in directory.absolute().parents if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise OutputConflict(f"{parent} is not writable", where=str(directory), remedy="choose another directory")


def put_export(made: Path, directory: Path, export: Export, readme: str) -> None:
    """Move the files in `made` to `directory`, with a record and a README, in place of an earlier export.

    They are copied to a temporary directory next to it, which is then renamed, so that an export is never incomplete.
    Raises OutputConflict.
    """
    check_export_directory(directory)
    target = directory.resolve()
    beside, old = (target.with_name(f".{target.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, beside)
        (beside / README).write_text(readme)
        (beside / RECORD).write_bytes(to_json(export, indent=2) + b"\n")
        if target.exists():
            os.replace(target, old)
        os.replace(beside, target)
    except OSError as fault:
        if old.exists() and not target.exists():
            os.replace(old, target)
        raise OutputConflict(
            f"is not writable ({fault.strerror or fault})", where=str(directory), remedy="choose another directory"
        ) from fault
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as fault:
        raise OutputConflict(f"cannot be read ({fault.strerror})", where=str(directory), remedy=_ELSEWHERE) from fault


def _names_of(directory: Path) -> set[str]:
    """Return the names of an earlier export's files; empty if there is no readable record of one."""
    try:
        return {*from_json((directory / RECORD).read_bytes(), Export).files, _BYTECODE}
    except (OSError, msgspec.DecodeError):
        return set()
