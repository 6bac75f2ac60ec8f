"""The requests that home sends to an agent, and the agent's answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from autocompile.core.environment import Environment
from autocompile.core.job import Limits, Reply, Task
from autocompile.core.serde import Record
from autocompile.core.workload import Workload

T = TypeVar("T")

# Digests by path: of all files below a directory, or of a single file under the path "".
Tree = dict[str, str]
Span = tuple[float, float]


class Hello(Record, tag="hello", frozen=True):
    """Ask which machine the agent is on."""


class Here(Record, tag="here", frozen=True):
    """The machine of an agent: `host` is its name, and `machine` is the same for all agents on one running system.

    `gpus`: the names of the GPUs that the agent may use, as NVML reports them.
    """

    host: str
    machine: str
    environment: Environment
    gpus: tuple[str, ...] = ()


class Keep(Record, tag="keep", frozen=True):
    """Append `data` to the file stored under `digest`. `is_last`: the file is then complete, and is checked."""

    digest: str
    data: bytes
    is_last: bool


class Lacking(Record, tag="lacking", frozen=True):
    """Ask which of these files the agent has not stored."""

    digests: tuple[str, ...]


class Digests(Record, tag="digests", frozen=True):
    """The digests that were asked for."""

    digests: tuple[str, ...]


class Open(Record, tag="open", frozen=True):
    """Prepare to run up to `workers` tasks of this workload at a time. `trees`: its files, by their paths at home."""

    workload: Workload
    workers: int
    trees: dict[str, Tree]


class Start(Record, tag="start", frozen=True):
    """Run a task as `core.runner.Runner.submit` does. `trees`: the files that it reads, by their paths at home."""

    number: int
    task: Task
    limits: Limits
    cache: str
    exclusive: bool
    trees: dict[str, Tree]


class Cancel(Record, tag="cancel", frozen=True):
    """End the task with this number."""

    number: int


class Forget(Record, tag="forget", frozen=True):
    """Delete a compiler cache."""

    cache: str


class News(Record, tag="news", frozen=True):
    """Ask which tasks have ended since the last time."""


class Ended(Record, frozen=True):
    """The result of a task: its `reply`, or the `fault` of the runner, and the `tree` of files that it made.

    Times are in seconds before this message was made, so that clocks of different machines are never compared.
    """

    number: int
    reply: Reply | None
    fault: str
    span_ago_s: Span
    pauses_ago_s: tuple[Span, ...]
    tree: Tree


class Told(Record, tag="told", frozen=True):
    """Tasks that have ended."""

    ended: tuple[Ended, ...]


class Fetch(Record, tag="fetch", frozen=True):
    """Ask for a piece of the file stored under `digest`, from `offset` on. An empty piece marks the end."""

    digest: str
    offset: int


class Piece(Record, tag="piece", frozen=True):
    """A piece of a file."""

    data: bytes


class Done(Record, tag="done", frozen=True):
    """The request was carried out."""


class Refused(Record, tag="refused", frozen=True):
    """The request cannot be carried out, for this reason."""

    reason: str


Ask = Hello | Keep | Lacking | Open | Start | Cancel | Forget | News | Fetch
Answer = Here | Digests | Told | Piece | Done | Refused


def packed(message: Ask | Answer) -> bytes:
    """Encode a message for sending."""
    return msgspec.msgpack.encode(message)


def ask_in(data: bytes) -> Ask:
    """Decode a request. Raises msgspec.DecodeError."""
    asked: Ask = msgspec.msgpack.decode(data, type=Ask)
    return asked


def answer_in(data: bytes) -> Answer:
    """Decode an answer. Raises msgspec.DecodeError."""
    answered: Answer = msgspec.msgpack.decode(data, type=Answer)
    return answered
