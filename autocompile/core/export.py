"""A model exported as a file that runs without this library: its inputs and outputs, and how it was verified."""

from __future__ import annotations

from typing import Literal

from autocompile.core.plan import Plan
from autocompile.core.program import Axis
from autocompile.core.serde import Record

EXPORT_VERSION = 1


class Input(Record, frozen=True):
    """An input tensor of the file: its `name` in the file, and the model's `argument` that it corresponds to.

    `shape` has a size, or the name of an axis, per dimension. `position`: its position among the tensors of the call.
    `sizes` and the range of values from `low` to `high` are those of the call that was exported. `layout`: its memory
    layout.
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
    """An output tensor of the file: its `name` in the file, and its places in the model's output."""

    name: str
    places: tuple[str, ...]


class Interface(Record, frozen=True):
    """Inputs and outputs of the file, in order.

    `gives`: for each tensor of the model's output, the index of the file's output. `fixed`: arguments that are not
    tensors, with the only value that the file is valid for. `unused`: arguments that do not affect the outputs.
    `literals`: parts of the model's output that are not tensors and never change. `notes`: further restrictions on the
    inputs.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    gives: tuple[int, ...]
    fixed: dict[str, str] = {}
    unused: tuple[str, ...] = ()
    literals: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class Verified(Record, frozen=True):
    """How the file was verified: the precision of the reference, the number of calls, and the worst result.

    `error` is the root mean square error of `output`, relative to the reference; `limit` is its limit.
    """

    reference: str
    calls: int
    error: float
    limit: float
    output: str


class Export(Record, frozen=True):
    """An exported file: the content of `export.json`, and the output of `autocompile export --json`.

    `file` is the file to load; `files` are all files in the directory. `label`: the configuration that it was written
    with. `axes`: the sizes that may vary. `libraries`: the versions of the libraries that wrote it and ran it.
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
