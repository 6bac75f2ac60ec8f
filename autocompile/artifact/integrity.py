"""Checks that an artifact's files are the ones that were packed, and that no other user may change them. No torch.

The check happens before any of them is opened, because loading runs native code. If the digest of the manifest is
given, or if another user could change files, the files are compared by SHA-256. Otherwise whoever can change them can
change the manifest, too. Then only damage can be detected, and a checksum detects it in about half of the time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue
from autocompile.core.manifest import MANIFEST_VERSION, FileEntry, Manifest
from autocompile.core.serde import Record, from_json, to_json, write_atomically
from autocompile.parallel import do_all
from autocompile.runtime.files import Files

MANIFEST = "manifest.json"
_PIECE_BYTES = 2 << 20
# How much of a piece is read at once; it fits in a processor's cache.
_BLOCK_BYTES = 1 << 18
# SHA-256, or the checksum.
_By = Literal["sha256", "checksum"]
_AGAIN = "pack it again with `autocompile tune`, or restore the copy that was deployed"


def entry_for(directory: Path, path: str) -> FileEntry:
    """Return the manifest entry of a file in `directory`."""
    file = directory / path
    size = file.stat().st_size

    def whole(by: _By) -> str:
        return _joined([_digest(file, start, by) for start in _starts(size)])

    return FileEntry(path=path, sha256=whole("sha256"), checksum=whole("checksum"), size_bytes=size)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest atomically: a reader finds either the old one or this one."""
    write_atomically(directory / MANIFEST, to_json(manifest, indent=2) + b"\n")


def manifest_digest(directory: Path) -> str:
    """Return the digest of the manifest in `directory`, "sha256:...", which identifies the artifact. Raises OSError."""
    return f"sha256:{hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest()}"


def prompts_directory(digest: str) -> str:
    """Return the name of the directory of a recommendation for prompts, within that for decode steps, by its digest.

    As another artifact has another name, a process that loads meanwhile finds the old one or the new one, complete.
    """
    return f"prompts-{digest.removeprefix('sha256:')[:12]}"


@dataclass(frozen=True)
class Opened:
    """A manifest and its files, which were checked. `held`: their contents, if another user could change them later."""

    manifest: Manifest
    directory: Path
    held: dict[str, bytes]
    _by_directory: dict[str, Files] = field(default_factory=dict)

    def files(self, within: str) -> Files:
        """Return the files in one of its directories."""
        if within not in self._by_directory:
            own = {path.partition("/")[2]: data for path, data in self.held.items() if path.startswith(f"{within}/")}
            self._by_directory[within] = Files(self.directory / within, own or None)
        return self._by_directory[within]

    def contents(self) -> dict[str, bytes]:
        """Return the contents of all files, by path within their directory; for a cache, by path within the cache."""
        placed = (entry.path.partition("/") for entry in self.manifest.files)
        return {name: self.files(within).read(name) for within, _slash, name in placed}


def open_manifest(directory: Path, digest: str | None = None) -> Manifest:
    """Return the manifest in `directory`, after checking it and every file that it names; see `open_artifact`."""
    return open_artifact(directory, digest).manifest


def open_artifact(directory: Path, digest: str | None = None) -> Opened:
    """Return the manifest in `directory`, and the files that it names, after checking them.

    The check reads all files. If a digest is given, or if another user could change them, it compares them by SHA-256,
    otherwise by a checksum. It keeps their contents only if another user could change them; otherwise large files are
    memory-mapped later. If the artifact is replaced during the check (the manifest has changed at its end), the check
    starts again with the new one.

    Raises InvalidArtifact if a file is missing, changed, a link, outside of the directory or writable by other users,
    or if the manifest does not have the given digest. Raises InvalidRecommendation if there is no artifact.
    """
    if digest is not None and not (digest.startswith("sha256:") and len(digest) == len("sha256:") + 64):
        remedy = "give it as `autocompile show` prints it"
        raise InvalidValue(f"{digest!r} is not a digest", where="digest", remedy=remedy)
    path = directory / MANIFEST
    if not path.exists() and not path.is_symlink():
        fault = "contains no artifact" if directory.is_dir() else "no such directory"
        raise InvalidRecommendation(fault, where=str(directory), remedy="create one with `autocompile tune`")
    places = _Places(pinned=digest is not None)
    places.check(directory, stat.S_ISDIR, "directory", follow=True)
    places.check(path, stat.S_ISREG, "file")
    data = path.read_bytes()
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest is not None and found != digest:
        raise InvalidArtifact(f"has digest {found}, not {digest}", where=str(path), remedy=_AGAIN)
    manifest = _decode(data, path)
    try:
        return Opened(manifest, directory, _checked_all(directory, manifest.all_files, places))
    except InvalidArtifact:
        if path.exists() and path.read_bytes() != data:
            return open_artifact(directory, digest)
        raise


class _Versioned(Record, frozen=True):
    """The field that manifests of all versions have."""

    manifest_version: int


def _decode(data: bytes, path: Path) -> Manifest:
    try:
        version = from_json(data, _Versioned).manifest_version
        manifest = from_json(data, Manifest) if version == MANIFEST_VERSION else None
    except msgspec.DecodeError as fault:
        raise InvalidArtifact(f"cannot be read: {fault}", where=str(path), remedy=_AGAIN) from fault
    if manifest is None:
        raise InvalidArtifact(
            f"has version {version}, but this version of autocompile reads {MANIFEST_VERSION}",
            where=str(path),
            remedy=f"{'upgrade autocompile, or ' if version > MANIFEST_VERSION else ''}tune again with this version",
        )
    named = {entry.path for entry in manifest.all_files}
    programs = (*manifest.programs, *(manifest.standby.programs if manifest.standby else ()))
    for needed in {f"{program.directory}/{name}" for program in programs for name in program.files}:
        if needed not in named:
            raise InvalidArtifact(f"contains no digest of {needed}", where=str(path), remedy=_AGAIN)
    return manifest


def _checked_all(directory: Path, entries: Sequence[FileEntry], places: _Places) -> dict[str, bytes]:
    """Check all files in parallel; return their contents if another user could change them before they are reopened."""
    placed = [(entry, _placed(directory, entry, places)) for entry in entries]
    by: _By = "checksum" if places.all_ours and not places.pinned else "sha256"
    held: dict[str, bytes] = {}
    if not places.all_ours:
        held = {entry.path: _content(entry, path) for entry, path in placed}
    found: dict[tuple[str, int], bytes] = {}

    def read(entry: FileEntry, path: Path, start: int) -> None:
        found[entry.path, start] = _digest(path, start, by, held.get(entry.path))

    do_all([partial(read, entry, path, start) for entry, path in placed for start in _starts(entry.size_bytes)])
    for entry, path in placed:
        packed = entry.sha256 if by == "sha256" else entry.checksum
        if _joined([found[entry.path, start] for start in _starts(entry.size_bytes)]) != packed:
            raise InvalidArtifact("is not what was packed: its digest differs", where=str(path), remedy=_AGAIN)
    return held


def _placed(directory: Path, entry: FileEntry, places: _Places) -> Path:
    """Return the path of a file, after checking its size, and that only this user or root can have put it there."""
    where = PurePosixPath(entry.path)
    if where.is_absolute() or ".." in where.parts or "\\" in entry.path or not where.parts:
        raise InvalidArtifact(f"{entry.path!r} is not a path within it", where=str(directory), remedy=_AGAIN)
    path = directory
    for part in where.parts[:-1]:
        path = path / part
        places.check(path, stat.S_ISDIR, "directory")
    path = path / where.name
    size = places.check(path, stat.S_ISREG, "file").st_size
    if size != entry.size_bytes:
        raise InvalidArtifact(f"has {size} bytes, not {entry.size_bytes}", where=str(path), remedy=_AGAIN)
    return path


def _starts(size: int) -> range:
    """Return where the pieces of a file of this size begin; an empty file has one empty piece."""
    return range(0, max(size, 1), _PIECE_BYTES)


def _content(entry: FileEntry, path: Path) -> bytes:
    """Return the content of a file, which has the size of its entry."""
    try:
        held = path.read_bytes()
    except OSError as fault:
        raise _unreadable(path, fault) from fault
    if len(held) != entry.size_bytes:
        raise InvalidArtifact(f"has {len(held)} bytes, not {entry.size_bytes}", where=str(path), remedy=_AGAIN)
    return held


def _digest(path: Path, start: int, by: _By, held: bytes | None = None) -> bytes:
    """Return the digest of the piece of a file that begins at `start`; `held` is its content, if it was read."""
    digest, told_of = hashlib.sha256(), _told_by(by)
    try:
        for block in _blocks(path, start) if held is None else _cut(memoryview(held)[start : start + _PIECE_BYTES]):
            digest.update(told_of(block))
    except OSError as fault:  # such as a file that was removed meanwhile
        raise _unreadable(path, fault) from fault
    return digest.digest()


def _told_by(by: _By) -> Callable[[memoryview], memoryview | bytes]:
    """Return the function that turns a block into the bytes that SHA-256 reads."""
    if by == "sha256":
        return lambda block: block
    from autocompile.runtime.digest import digest_of  # noqa: PLC0415  imports numpy

    return digest_of


def _blocks(path: Path, start: int) -> Iterator[memoryview]:
    """Yield the blocks of the piece of a file that begins at `start`. Each is only valid until the next one."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        for _ in range(_PIECE_BYTES // _BLOCK_BYTES):
            filled = 0
            while filled < _BLOCK_BYTES and (read := stream.readinto(block[filled:])):
                filled += read
            yield block[:filled]


def _cut(piece: memoryview) -> Iterator[memoryview]:
    """Yield the same blocks of a piece that is in memory."""
    for start in range(0, _PIECE_BYTES, _BLOCK_BYTES):
        yield piece[start : start + _BLOCK_BYTES]


def _unreadable(path: Path, fault: OSError) -> InvalidArtifact:
    return InvalidArtifact(f"cannot be opened ({fault.strerror})", where=str(path), remedy=_AGAIN)


def _joined(pieces: Sequence[bytes]) -> str:
    """Return the digest of a file from those of its pieces."""
    return pieces[0].hex() if len(pieces) == 1 else hashlib.sha256(b"".join(pieces)).hexdigest()


class _Places:
    """Checks owners and permissions of paths. With a given digest (`pinned`), any owner is accepted.

    `all_ours`: whether only this user and root can write to the files, so that they stay as they were checked.
    """

    def __init__(self, *, pinned: bool) -> None:
        self.all_ours = True
        self.pinned = pinned

    def check(self, path: Path, is_right: Callable[[int], bool], noun: str, *, follow: bool = False) -> os.stat_result:
        """Check that a path is of the right kind, not a link, owned by this user or root, and not world-writable.

        Return its status.
        """
        try:
            status = path.stat() if follow else path.lstat()
        except OSError as fault:
            raise _unreadable(path, fault) from fault
        if stat.S_ISLNK(status.st_mode):
            raise InvalidArtifact("is a link, which an artifact may not contain", where=str(path), remedy=_AGAIN)
        if not is_right(status.st_mode):
            raise InvalidArtifact(f"is not a {noun}", where=str(path), remedy=_AGAIN)
        if status.st_mode & stat.S_IWOTH:
            raise InvalidArtifact("is writable by every user", where=str(path), remedy=f"run: chmod o-w {path}")
        is_foreign = hasattr(os, "getuid") and status.st_uid not in (0, os.getuid())
        if is_foreign or status.st_mode & stat.S_IWGRP:
            self.all_ours = False
        if is_foreign and not self.pinned:
            raise InvalidArtifact(
                "belongs to another user, who could change it",
                where=str(path),
                remedy="copy it to a directory of your own, or give its digest with digest=",
            )
        return status


def listed(directory: Path, within: str) -> Sequence[str]:
    """Return all files under `within`, a directory in `directory`, by their names in a manifest, in order."""
    root = directory / within
    return sorted(path.relative_to(directory).as_posix() for path in root.rglob("*") if path.is_file())
