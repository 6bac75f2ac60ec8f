"""The directory of a recommendation: what lies in it, and who may write there. No torch."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from autocompile.artifact.integrity import MANIFEST
from autocompile.artifact.store import deliver, is_store
from autocompile.core.document import SCHEMA_VERSION, Document
from autocompile.core.errors import InvalidRecommendation, OutputConflict
from autocompile.core.serde import from_json, to_json, write_atomically

DOCUMENT, SNIPPET, REPORT, STUDY, WORK = (
    "recommendation.json", "snippet.py", "report.html", "study.db", ".work",
)  # fmt: skip
_OURS = frozenset({DOCUMENT, SNIPPET, REPORT, MANIFEST, STUDY, f"{STUDY}-journal", WORK})
_ELSEWHERE = "choose another output directory, or empty this one"


def read_document(directory: Path) -> Document:
    """The recommendation in `directory`. Raises InvalidRecommendation if there is none that can be read."""
    path = directory / DOCUMENT
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise InvalidRecommendation(
            f"holds no recommendation ({fault.strerror})",
            where=str(directory),
            remedy="make one with `autocompile tune`",
        ) from fault
    try:
        document = from_json(data, Document)
    except msgspec.DecodeError as fault:
        raise InvalidRecommendation(str(fault), where=str(path), remedy="tune again with this version") from fault
    if document.schema_version != SCHEMA_VERSION:
        raise InvalidRecommendation(
            f"has schema version {document.schema_version}, and this version reads {SCHEMA_VERSION}",
            where=str(path),
            remedy="tune again with this version",
        )
    return document


def write_recommendation(directory: Path, document: Document, artifact: Path, report: str) -> None:
    """Keep a recommendation: the document, its snippet and its `report` as files, and what lies in `artifact`.

    Raises OutputConflict if something else lies there, another workload's recommendation included.
    """
    check_output(directory)
    check_same_workload(directory, document.workload.fingerprint)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / SNIPPET, document.snippet.encode())
    write_atomically(directory / REPORT, report.encode())
    write_atomically(directory / DOCUMENT, to_json(document, indent=2) + b"\n")
    deliver(artifact, directory)


def check_output(directory: Path) -> None:
    """Raises OutputConflict if something lies there that is not a recommendation's."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise OutputConflict("is a file", where=str(directory), remedy=_ELSEWHERE)
    others = sorted(entry.name for entry in directory.iterdir() if not _is_ours(entry.name))
    if others:
        raise OutputConflict(f"holds something else ({others[0]})", where=str(directory), remedy=_ELSEWHERE)


def _is_ours(name: str) -> bool:
    return (
        name in _OURS or is_store(name) or (name.startswith(".") and name.endswith(".part"))
    )  # half-written when it was killed


def check_same_workload(directory: Path, fingerprint: str) -> None:
    """Raises OutputConflict if the recommendation there is for another workload."""
    if (directory / DOCUMENT).exists() and read_document(directory).workload.fingerprint != fingerprint:
        raise OutputConflict(
            "holds the recommendation of another workload (the model's code, structure or inputs differ)",
            where=str(directory),
            remedy=_ELSEWHERE,
        )


@contextmanager
def working_directory(output: Path | None) -> Iterator[Path]:
    """Where a run keeps what it needs only while it runs: within `output`, or a temporary directory.

    What a killed run left there is removed first. Raises OutputConflict if a run is still at work there.
    """
    if output is None:
        with tempfile.TemporaryDirectory(prefix="autocompile-") as temporary:
            yield Path(temporary)
        return
    check_output(output)
    existed = output.exists()
    work = output / WORK
    try:
        _claim(work)
    except OSError as fault:
        raise OutputConflict(
            f"cannot be written to ({fault.strerror})", where=str(output), remedy="choose another output directory"
        ) from fault
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not existed and not any(output.iterdir()):
            output.rmdir()


def _claim(work: Path) -> None:
    owner = work / "pid"
    try:
        pid = int(owner.read_text())
    except (OSError, ValueError):
        pid = 0
    if pid and pid != os.getpid() and psutil.pid_exists(pid):
        raise OutputConflict(
            f"another run (process {pid}) is at work there", where=str(work.parent), remedy="wait for it, or end it"
        )
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    owner.write_text(str(os.getpid()))
