"""Delivers an artifact's files: they are named by their contents, copied to the recommendation, then old ones removed.

The manifest is replaced after all files that it names are present. The files of the old manifest are removed after
that. A process that loads meanwhile therefore finds either the old artifact or the new one, complete.
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

# Earlier versions named the directories `aot-...` and `cache-...`.
_OURS = re.compile(r"(packed|aot|cache)-[0-9a-f]{12}")
_PARTIAL = re.compile(r"\.(packed|aot|cache)-[0-9a-f]{12}\.\d+\.part")


def settle(directory: Path, packed: str) -> tuple[str, tuple[FileEntry, ...]]:
    """Rename `directory`/`packed` to a name derived from its contents; return the name and the entries of the files."""
    entries = [entry_for(directory, path) for path in listed(directory, packed)]
    told = "".join(f"{entry.path} {entry.sha256}\n" for entry in entries)
    name = f"packed-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    if (directory / name).exists():
        shutil.rmtree(directory / packed)
    else:
        (directory / packed).rename(directory / name)
    return name, tuple(replace(entry, path=name + entry.path.removeprefix(packed)) for entry in entries)


def is_store(name: str) -> bool:
    """Return whether a name in a recommendation's directory belongs to an artifact, possibly a half copied one."""
    return bool(_OURS.fullmatch(name) or _PARTIAL.fullmatch(name))


def _same(source: Path, target: Path, name: str) -> bool:
    """Return whether the files of this name are already present and undamaged."""
    paths = listed(source, name)
    return listed(target, name) == paths and all(entry_for(source, p) == entry_for(target, p) for p in paths)


def add(source: Path, target: Path, manifest: Manifest) -> set[str]:
    """Copy the files of the artifact in `source` to `target`; return the names of their directories."""
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
    """Copy the artifact in `source` to `target`, a recommendation's directory, and remove the old artifact there."""
    if source.resolve() == target.resolve():
        return
    manifest = from_json((source / MANIFEST).read_bytes(), Manifest)
    names = add(source, target, manifest)
    write_atomically(target / MANIFEST, (source / MANIFEST).read_bytes())
    for entry in target.iterdir():
        if is_store(entry.name) and entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
