"""A model as a file that runs without this library: what it takes and gives, and how it was verified."""

from __future__ import annotations

from typing import Literal

from autocompile.core.plan import Plan
from autocompile.core.program import Axis
from autocompile.core.serde import Record

EXPORT_VERSION = 1


class Input(Record, frozen=True):
    """A tensor that the file takes: its `name` there, and the model's `argument` that it is.

    `shape` has a size, or an axis's name. `position`: which of the call's tensors it is. `sizes`, and the range of
    values from `low` to `high`, are those of the call that was exported. `layout`: how it lies in memory.
    """

    name: str
    argument: str
    position: int
    dtype: str
    shape: tuple[int | str, ...]
    sizes: tuple[int, ...]
    low: float | int
    high: float | int
    layout: Literal["contiguous", "channels_last"] = "contiguous"


class Output(Record, frozen=True):
    """A tensor that the file gives: its `name` there, and where it stands in what the model returns."""

    name: str
    places: tuple[str, ...]


class Interface(Record, frozen=True):
    """What the file takes and gives, in order. `gives`: for each tensor of the model's output, which output it is.

    `fixed`: arguments that are no tensors, and the values that the file holds for. `unused`: arguments that change no
    output. `literals`: parts of the model's output that are no tensors, and always the same. `notes`: what else limits
    the calls that it takes.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    gives: tuple[int, ...]
    fixed: dict[str, str] = {}
    unused: tuple[str, ...] = ()
    literals: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class Verified(Record, frozen=True):
    """How the file was compared: against which precision, with how many calls, and the worst of all of them.

    `error` is relative to the reference (root mean square), of `output`; `limit` is what it may be.
    """

    reference: str
    calls: int
    error: float
    limit: float
    output: str


class Export(Record, frozen=True):
    """An exported file: what `export.json` holds, and `autocompile export --json` prints.

    `file` is what is loaded, and `files` are all that lie in the directory. `label`: the configuration that it was
    written with; `axes`: the sizes that may vary. `libraries`: versions of what wrote it and ran it.
    """

    export_version: int
    format: str
    meaning: str
    file: str
    files: tuple[str, ...]
    workload: str
    fingerprint: str
    device_type: str
    label: str
    plan: Plan
    interface: Interface
    axes: tuple[Axis, ...]
    verified: Verified
    libraries: dict[str, str]
    host: str
    created: str
