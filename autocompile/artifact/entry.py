"""`autocompile.load`, which imports torch only if tensors are to be served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from autocompile.artifact.options import BY_DEFAULT, Asked, Fallback, OnMismatch, WeightCheck
from autocompile.core.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from autocompile.artifact.arrays import ArrayModule
    from autocompile.artifact.module import CompiledModule


@overload
def load(
    path: str | Path,
    model: Any = None,
    *,
    arrays: Literal["torch"] = "torch",
    calls: int | None = None,
    on_mismatch: OnMismatch = "fallback",
    fallback: Fallback = "eager",
    digest: str | None = None,
    background: bool = False,
    weight_check: WeightCheck = "full",
) -> CompiledModule: ...


@overload
def load(path: str | Path, *, arrays: Literal["numpy"], digest: str | None = None) -> ArrayModule: ...


def load(  # noqa: PLR0913  each is an option of its own
    path: str | Path,
    model: Any = None,
    *,
    arrays: str = "torch",
    calls: int | None = None,
    on_mismatch: OnMismatch = "fallback",
    fallback: Fallback = "eager",
    digest: str | None = None,
    background: bool = False,
    weight_check: WeightCheck = "full",
) -> Any:
    """Serve `model` as the recommendation at `path` says; the model stays as it is, and keeps its weights.

    Parameters: `model`, the one that was tuned. It may be left out where the artifact holds its weights, and nothing of
    it is needed then: outputs keep their structure, and a record whose class cannot be imported becomes a dict with the
    same names. `arrays`, "torch" or "numpy": with "numpy" it serves NumPy arrays, takes no model, and never imports
    torch; it raises InvalidRecommendation where the packed runtime cannot do that. `calls`, how many calls this process
    will make, for which the best configuration is then taken. `on_mismatch`, what to do if the artifact does not fit
    this model or machine: serve by the fallback, with a warning, or raise ("fallback", "error"). `fallback`, what
    serves then (but where only a library is missing, a program on the model's own weights, if one was packed beside),
    and whatever call the compiled program was not made for: `eager`, or `jit`, which compiles at its
    first call. `digest`, "sha256:...", refuses any other artifact. `background`, where something is to be compiled,
    serves eager until a thread has done it. `weight_check`, how the model's weights are compared with those that the
    artifact holds, if it holds any: all bytes ("full"), or 4 KB of each tensor ("sample"), which `status.notes` then
    says; after a change that is seen while it serves, all bytes are compared.
    The configuration's CPU threads, and on a CPU how glibc's heap keeps what is freed (`autocompile.heap`),
    are settings of the whole process, and are applied.

    Loading an artifact runs native code from it. Raises InvalidArtifact, before anything in it is opened,
    if its files are not the ones that were packed or others may change them; InvalidRecommendation if there
    is none, or, with `on_mismatch="error"`, if it does not fit; UsageError if the model is missing.
    """
    asked = Asked(calls, on_mismatch, fallback, digest, background, weight_check)
    if arrays == "torch":
        from autocompile.artifact.load import load as load_module  # noqa: PLC0415  imports torch

        return load_module(path, model, asked)
    if arrays != "numpy":
        raise InvalidValue(f"{arrays!r} is unknown", where="arrays", remedy="give 'torch' or 'numpy'")
    _check_for_arrays(model, asked)
    from autocompile.artifact.arrays import load_arrays  # noqa: PLC0415  its libraries are optional

    return load_arrays(path, digest)


def _check_for_arrays(model: Any, asked: Asked) -> None:
    """Raises UsageError for whatever has no meaning where NumPy arrays are served."""
    given = {"model": model, **vars(replace(asked, digest=None))}
    usual = {"model": None, **vars(BY_DEFAULT)}
    for name in (name for name in given if given[name] != usual[name]):
        remedy = f"drop {name}, or drop arrays='numpy'"
        raise UsageError(f"NumPy arrays are served without {name}", where="load", remedy=remedy)
