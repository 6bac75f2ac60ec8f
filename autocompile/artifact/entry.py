"""`autocompile.load`, which imports torch only if the module is to take tensors."""

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
    """Load the recommendation at `path`, and return a module that runs `model` as recommended.

    The model is not changed, and the module shares its weights. Loading an artifact runs native code from it.

    Loading also changes two settings of the whole process: the number of CPU threads, if the configuration has one, and
    on a CPU the thresholds at which glibc's heap returns freed memory to the system (see `autocompile.heap`).

    Args:
        path: The directory of the recommendation.
        model: The model that was tuned. It may be omitted if the artifact contains the weights. Outputs then keep their
            structure, but an output object whose class cannot be imported becomes a dict with the same names.
        arrays: "torch", or "numpy" for a module that takes and returns NumPy arrays. With "numpy" no model is given,
            and torch is never imported; not every packed runtime supports that.
        calls: How many calls this process will make. The best configuration for that number of calls is used.
        on_mismatch: What to do if the artifact does not fit this model or machine: "fallback" warns and uses the
            fallback, "error" raises InvalidRecommendation.
        fallback: What runs in that case, and for calls that the compiled program was not compiled for: "eager", or
            "jit", which compiles at the first such call. If only a library is missing, and a second program that uses
            the model's own weights was packed, that program runs instead.
        digest: The digest of the expected artifact, "sha256:...". Any other artifact is refused.
        background: If something has to be compiled, whether to run eager until a thread has compiled it.
        weight_check: How the model's weights are compared with the weights in the artifact, if it contains weights:
            "full" compares all bytes, "sample" compares 4 KB of each tensor and is noted in `status.notes`. If the
            weights change later, all bytes are compared.

    Returns:
        A `CompiledModule`, called like the model, or an `ArrayModule` with `arrays="numpy"`.

    Raises:
        InvalidArtifact: If a file is not the one that was packed, or other users may change it. Nothing has been opened
            then.
        InvalidRecommendation: If there is no recommendation; if it does not fit and `on_mismatch` is "error"; or if the
            packed runtime cannot take NumPy arrays.
        UsageError: If the model is needed, and is missing.
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
    """Raise UsageError for an option that has no meaning with `arrays="numpy"`."""
    given = {"model": model, **vars(replace(asked, digest=None))}
    usual = {"model": None, **vars(BY_DEFAULT)}
    for name in (name for name in given if given[name] != usual[name]):
        remedy = f"drop {name}, or drop arrays='numpy'"
        raise UsageError(f"{name} cannot be combined with arrays='numpy'", where="load", remedy=remedy)
