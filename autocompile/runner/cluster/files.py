"""Files identified by their contents: each is sent to a machine only once, whatever directories it is in."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path, PurePosixPath

from autocompile.core.errors import RunnerError
from autocompile.runner.cluster.messages import Tree

PIECE_BYTES = 1 << 24


class Digests:
    """Digests of files. A file that has not changed is not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], str] = {}

    def tree(self, path: Path) -> Tree:
        """Return the digest of the file at `path`, or of all files below it. Empty if `path` does not exist."""
        if path.is_file():
            return {"": self._of(path)}
        files = sorted(found for found in path.rglob("*") if found.is_file())
        return {found.relative_to(path).as_posix(): self._of(found) for found in files}

    def _of(self, path: Path) -> str:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns, status.st_ino)
        if key not in self._known:
            with path.open("rb") as stream:
                self._known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        return self._known[key]


class Store:
    """Files stored by digest in `directory`, from which the directories that tasks read are made."""

    def __init__(self, directory: Path) -> None:
        self._kept, self._parts, self._trees = (directory / name for name in ("kept", "parts", "trees"))
        for made in (self._kept, self._parts, self._trees):
            made.mkdir(parents=True, exist_ok=True)

    def has(self, digest: str) -> bool:
        """Whether the complete file is stored."""
        return (self._kept / digest).exists()

    def append(self, digest: str, data: bytes, *, is_last: bool) -> None:
        """Append a piece of a file. Raises RunnerError if the complete file does not match its digest."""
        part = self._parts / _name(digest)
        with part.open("ab") as stream:
            stream.write(data)
        if not is_last:
            return
        with part.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != digest:
            part.unlink()
            raise RunnerError("a file arrived damaged")
        os.replace(part, self._kept / digest)

    def adopt(self, path: Path, tree: Tree) -> None:
        """Store the files that are already at `path`."""
        for name, digest in tree.items():
            if not self.has(digest):
                shutil.copyfile(path / name if name else path, self._kept / _name(digest))

    def piece(self, digest: str, offset: int) -> bytes:
        """Return the next piece of a file from `offset` on; empty at the end of the file."""
        with (self._kept / _name(digest)).open("rb") as stream:
            stream.seek(offset)
            return stream.read(PIECE_BYTES)

    def put_down(self, tree: Tree) -> Path:
        """Return the directory of a tree. An existing directory is left as it is."""
        listing = "\n".join(f"{name}\0{digest}" for name, digest in sorted(tree.items()))
        target = self._trees / hashlib.sha256(listing.encode()).hexdigest()[:32]
        if not target.exists():
            beside = target.with_suffix(".part")
            self.copy(tree, beside)
            os.replace(beside, target)
        return target

    def copy(self, tree: Tree, target: Path) -> None:
        """Copy a tree's files to `target`. Raises RunnerError for a file that would be outside of it."""
        for name, digest in tree.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise RunnerError(f"a file's path leads outside its directory: {name}")
            file = target / path if name else target
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._kept / _name(digest), file)
        if "" not in tree:
            target.mkdir(parents=True, exist_ok=True)


def _name(digest: str) -> str:
    """Return the digest after a check that it is one, as it becomes a file name. Raises RunnerError if not."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise RunnerError("a file's digest is not a valid SHA-256 digest")
    return digest
