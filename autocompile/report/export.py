"""Describes an exported file: its README, and the output of `autocompile export`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autocompile.core.export import Export, Input, Verified

_PRECISIONS = {"float64": "the float64 reference"}


def export_lines(export: Export, directory: Path) -> Iterator[str]:
    """Yield where the file is, how it was verified, and how to run it."""
    yield f"{directory / export.file}: {export.workload} as {export.meaning}"
    yield f"  {verified_line(export.verified)}"
    yield f"  written with {export.label}; inputs: {', '.join(_brief(one, export) for one in export.interface.inputs)}"
    yield f"  python {directory / 'example.py'} runs it without autocompile; see {directory / 'README.md'} for details"


def verified_line(verified: Verified) -> str:
    """Return what the file was compared with, on how many calls, the largest error, and its limit."""
    if verified.output == "metric":
        return (
            f"Verified with {verified.calls} calls: the metric drops by {verified.error:.2g}; "
            f"the limit is {verified.limit:.2g}."
        )
    reference = _PRECISIONS.get(verified.reference, "the model itself, as it does not run in float64")
    return (
        f"Verified against {reference} with {verified.calls} calls: the largest error is {verified.error:.2g} "
        f"(relative root mean square); the limit is {verified.limit:.2g}."
    )


def readme_of(export: Export) -> str:
    """Return the file's README: what it contains, how it was made, its inputs and outputs, and how it was verified."""
    return "\n".join([*_origin(export), "", *_inputs(export), "", *_outputs(export), "", *_verification(export), ""])


def _origin(export: Export) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in export.libraries.items())
    yield f"# {export.workload} as {export.meaning}"
    yield ""
    yield f"`{export.file}` was written by autocompile on {export.created}, with {versions},"
    yield f"on {export.host}, for a {export.device_type}."
    yield f"The configuration is {export.label}; the workload's fingerprint is {export.fingerprint}."
    yield ""
    yield "`python example.py` runs it on random inputs. It does not need autocompile."


def _inputs(export: Export) -> Iterator[str]:
    interface = export.interface
    yield "## Inputs"
    yield ""
    yield "In this order. Calls of other sizes or dtypes were not verified."
    yield ""
    yield "| name | argument of the model | dtype | sizes |"
    yield "|---|---|---|---|"
    for one in interface.inputs:
        layout = ", channels_last" if one.layout == "channels_last" else ""
        yield f"| `{one.name}` | `{one.argument}` | {one.dtype} | {_sizes(one)}{layout} |"
    yield ""
    for axis in export.axes:
        yield f"- `{axis.name}` may be from {axis.low} to {axis.high}, and is the same wherever it occurs."
    if not export.axes:
        yield "- All sizes are fixed."
    for name, literal in interface.fixed.items():
        yield f"- `{name}` is `{literal}`: the file is valid for that value only."
    for name in interface.unused:
        yield f"- `{name}` is not an input of the file: it does not affect the outputs."
    for note in interface.notes:
        yield f"- {note[0].upper()}{note[1:]}."


def _outputs(export: Export) -> Iterator[str]:
    interface = export.interface
    yield "## Outputs"
    yield ""
    yield "In this order; `output` is what the model returns."
    yield ""
    yield "| name | in the model's output |"
    yield "|---|---|"
    for one in interface.outputs:
        yield f"| `{one.name}` | {', '.join(f'`{place}`' for place in one.places)} |"
    if interface.literals:
        yield ""
    for place, literal in interface.literals.items():
        yield f"- `{place}` is always `{literal}`."


def _verification(export: Export) -> Iterator[str]:
    yield "## Verified"
    yield ""
    yield verified_line(export.verified)
    if export.axes:
        yield "The calls are the samples, random variants of them, and sizes across the whole of each range."
    else:
        yield "The calls are the samples, and random variants of them."
    yield "The file was loaded in the same way as in `example.py`; `export.json` contains the figures."


def _sizes(one: Input) -> str:
    return "(" + ", ".join(str(size) for size in one.shape) + ")"


def _brief(one: Input, export: Export) -> str:
    ranges = {axis.name: f"{axis.low}..{axis.high}" for axis in export.axes}
    return f"{one.name}: {one.dtype} ({', '.join(ranges.get(str(size), str(size)) for size in one.shape)})"
