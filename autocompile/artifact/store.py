"""An artifact's files on their way: named by what they hold, moved beside the recommendation, old ones removed last.

The manifest is replaced after the files that it names are there, and the files that the old one named go
after that: whoever loads meanwhile finds the old artifact or the new one, whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from autocompile.artifact.integrity import MANIFEST, entry_for, listed
from autocompile.core.manifest import FileEntry, Manifest
from autocompile.core.serde import from_json, write_atomically

# Earlier versions named them by tier.
_OURS = re.compile(r"(packed|aot|cache)-[0-9a-f]{12}")
_PARTIAL = re.compile(r"\.(packed|aot|cache)-[0-9a-f]{12}\.\d+\.part")


def settle(directory: Path, packed: str) -> tuple[str, tuple[FileEntry, ...]]:
    """Rename what was packed, in `directory`/`packed`, to a name made of its contents; the name, and the files."""
    entries = [entry_for(directory, path) for path in listed(directory, packed)]
    told = "".join(f"{entry.path} {entry.sha256}\n" for entry in entries)
    name = f"packed-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    if (directory / name).exists():
        shutil.rmtree(directory / packed)
    else:
        (directory / packed).rename(directory / name)
    return name, tuple(replace(entry, path=name + entry.path.removeprefix(packed)) for entry in entries)


def is_store(name: str) -> bool:
    """Whether something in a recommendation's directory is an artifact's files, whole or half copied."""
    return bool(_OURS.fullmatch(name) or _PARTIAL.fullmatch(name))


def _same(source: Path, target: Path, name: str) -> bool:
    """Whether the files of this name are there already, undamaged."""
    paths = listed(source, name)
    return listed(target, name) == paths and all(entry_for(source, p) == entry_for(target, p) for p in paths)


def add(source: Path, target: Path, manifest: Manifest) -> set[str]:
    """Put the files of the artifact in `source` into `target`; the directories' names."""
    names = {PurePosixPath(entry.path).parts[0] for entry in manifest.all_files}
    for name in names:
        if not _same(source, target, name):
            beside = target / f".{name}.{os.getpid()}.part"
            shutil.rmtree(beside, ignore_errors=True)
            shutil.copytree(source / name, beside)
            shutil.rmtree(target / name, ignore_errors=True)
            os.replace(beside, target / name)
    return names


def deliver(source: Path, target: Path) -> None:
    """Put the artifact in `source` into `target`, a recommendation's directory, in place of what was there."""
    if source.resolve() == target.resolve():
        return
    manifest = from_json((source / MANIFEST).read_bytes(), Manifest)
    names = add(source, target, manifest)
    write_atomically(target / MANIFEST, (source / MANIFEST).read_bytes())
    for entry in target.iterdir():
        if is_store(entry.name) and entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
