"""What home asks of an agent, and what it answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from autocompile.core.environment import Environment
from autocompile.core.job import Limits, Reply, Task
from autocompile.core.serde import Record
from autocompile.core.workload import Workload

T = TypeVar("T")

# Files beneath a directory, or the file itself under "": their digests by path.
Tree = dict[str, str]
Span = tuple[float, float]


class Hello(Record, tag="hello", frozen=True):
    """Say which machine it is."""


class Here(Record, tag="here", frozen=True):
    """The machine of an agent: `host` is its name, `machine` the same for all agents on one running system.

    `gpus`: the names of those that the agent may use, as NVML tells them.
    """

    host: str
    machine: str
    environment: Environment
    gpus: tuple[str, ...] = ()


class Keep(Record, tag="keep", frozen=True):
    """Append `data` to what is kept under `digest`; `is_last`: that is all of it, and is to be checked."""

    digest: str
    data: bytes
    is_last: bool


class Lacking(Record, tag="lacking", frozen=True):
    """Say which of these are not kept."""

    digests: tuple[str, ...]


class Digests(Record, tag="digests", frozen=True):
    """Those that were asked for."""

    digests: tuple[str, ...]


class Open(Record, tag="open", frozen=True):
    """Prepare to run tasks of this workload, `workers` of them side by side; `trees` by the paths they have at home."""

    workload: Workload
    workers: int
    trees: dict[str, Tree]


class Start(Record, tag="start", frozen=True):
    """Run a task as `core.runner.Runner.submit` has it; `trees`: what it reads, by the paths they have at home."""

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
    """Say what has ended since the last time."""


class Ended(Record, frozen=True):
    """What came of a task: its `reply`, or the `fault` of the machinery, and the `tree` of files that it made.

    Seconds are counted back from when this was said: clocks of different machines are never compared.
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
    """Give a piece of what is kept under `digest`, from `offset` on; an empty one is its end."""

    digest: str
    offset: int


class Piece(Record, tag="piece", frozen=True):
    """A piece of a file."""

    data: bytes


class Done(Record, tag="done", frozen=True):
    """It was done."""


class Refused(Record, tag="refused", frozen=True):
    """It cannot be done, for this reason."""

    reason: str


Ask = Hello | Keep | Lacking | Open | Start | Cancel | Forget | News | Fetch
Answer = Here | Digests | Told | Piece | Done | Refused


def packed(message: Ask | Answer) -> bytes:
    """As it travels."""
    return msgspec.msgpack.encode(message)


def ask_in(data: bytes) -> Ask:
    """Raises msgspec.DecodeError."""
    asked: Ask = msgspec.msgpack.decode(data, type=Ask)
    return asked


def answer_in(data: bytes) -> Answer:
    """Raises msgspec.DecodeError."""
    answered: Answer = msgspec.msgpack.decode(data, type=Answer)
    return answered
