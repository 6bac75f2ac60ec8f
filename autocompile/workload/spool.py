"""Send a model and its inputs to another process."""

from __future__ import annotations

import pickletools
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

from autocompile.core.errors import InvalidWorkload, UsageError
from autocompile.core.pipeline import InputPipeline
from autocompile.core.workload import TrainingEntry, Workload
from autocompile.workload import pickling, revival
from autocompile.workload.axes import first_axes, resized
from autocompile.workload.call import Call
from autocompile.workload.capture.calls import check_alike
from autocompile.workload.capture.kept_loader import keep_loader
from autocompile.workload.capture.loader import has_a_twin
from autocompile.workload.capture.stream import Taken, is_stream, take
from autocompile.workload.capture.training import active_in_training
from autocompile.workload.gpu import gpus_among
from autocompile.workload.identity.facts import identity_of, workload_fingerprint
from autocompile.workload.opaque import tensors_in
from autocompile.workload.samples import Sample, as_samples, describe, signatures_of
from autocompile.workload.settings import apply_settings, current_settings
from autocompile.workload.step import Step
from autocompile.workload.training.entry import entry_of
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training, steps_of

_FILE = "workload.pt"
# For inputs that come one by one. A pass over more batches of the same shapes takes longer and adds no information.
_ENOUGH = 4


def spool(
    model: Any,
    inputs: Any,
    directory: Path,
    *,
    name: str = "",
    tries_loaders: bool = False,
    keep: Path | None = None,
    training: Training | None = None,
) -> Workload:
    """Write `model` and `inputs` into `directory`, so that a child process can load them.

    With `training`, the inputs are its batches. Model and training are pickled together, so that in the child process
    the optimizer still holds the model's own parameters. This process does not change either of them.

    Classes and functions of `__main__` are pickled by value, so a child process never imports the user's script. A
    DataLoader stays in this process: its first batches are written, and how long they take to load (with
    `tries_loaders`, in other settings too). `keep` is a file to which the samples are also written alone, for
    `kept_inputs`. Raises InvalidWorkload if the model is not callable, if the inputs have an unknown form or differ in
    a way that the model does not accept, or if something cannot be pickled. The error names the attribute.
    """
    _check(model, training)
    taken = _taken(model, inputs, training, tries_loaders=tries_loaders) if is_stream(inputs) else None
    samples, notes = _samples_of(model, inputs, taken, training)
    directory.mkdir(parents=True, exist_ok=True)
    _write(model, samples, training, directory / _FILE)
    if keep is not None:
        torch.save(samples, keep, pickle_module=pickling)
    signatures, identity = signatures_of(samples), identity_of(model)
    entry, digest = entry_of(model, training) if training else (None, "")
    module = model if isinstance(model, nn.Module) else None
    parameters = list(module.parameters()) if module else []
    devices = _devices_of(model, samples)
    return Workload(
        name=name or _name_of(model),
        kind=entry.kind if entry else "inference",
        device=str(devices[0]),
        directory=str(directory),
        signatures=signatures,
        fingerprint=workload_fingerprint(identity, signatures, digest),
        model_fingerprint=identity.digest,
        identity=identity,
        is_module=module is not None,
        sample_count=len(samples),
        in_training_mode=bool(module and module.training),
        parameter_count=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        has_conv=any(p.dim() == 4 for p in parameters),
        parameter_dtype=str(parameters[0].dtype).removeprefix("torch.") if parameters else "",
        settings=current_settings(),
        modules=tuple(_imported_modules(directory / _FILE)),
        search_path=tuple(sys.path),
        pipeline=_pipeline(taken, inputs, entry, directory),
        notes=notes,
        left_out=taken.left_out if taken else "",
        active_in_training=() if training else active_in_training(model),
        has_recurrence=any(isinstance(part, nn.RNNBase) for part in module.modules()) if module else False,
        training=entry,
        gpus=gpus_among(devices),
    )


def _taken(model: Any, inputs: Any, training: Training | None, *, tries_loaders: bool) -> Taken:
    """Take the first batches. The loader of a training is timed later, while the model trains."""
    return take(inputs, model, tries_loaders=tries_loaders and training is None, whole=training is not None)


def _pipeline(taken: Taken | None, inputs: Any, entry: TrainingEntry | None, directory: Path) -> InputPipeline | None:
    """Return how the inputs come.

    A training's DataLoader is written next to the workload, to be tried with other settings.
    """
    if taken is None or entry is None:
        return taken.pipeline if taken else None
    if entry.by_closure:  # an optimizer calls its closure many times for one batch, so loading is not part of a call
        return None
    stays = keep_loader(inputs, directory) if has_a_twin(inputs) else "it does not iterate like torch's own DataLoader"
    return replace(taken.pipeline, stays=stays)


def _samples_of(
    model: Any, inputs: Any, taken: Taken | None, training: Training | None
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Return the given inputs as units of work, and notes for the user."""
    given = taken.calls if taken else inputs
    samples = steps_of(given, training) if training else as_samples(given)
    notes = taken.notes if taken else ()
    if taken and len(samples) > _ENOUGH and len(set(map(describe, samples))) == 1:
        samples = samples[:_ENOUGH]
        notes = (*notes, f"{_ENOUGH} {'steps' if training else 'of them'} were kept, as all have the same shapes")
    if training is None:
        check_alike(model, samples)
    return samples, notes


def unspool(workload: Workload, *, batch: int = 0) -> tuple[Any, tuple[Sample, ...]]:
    """Return the model and its samples, on their original device, and apply the settings of their original process.

    With a `batch`, the samples are repeated or cut to calls of that size. Call this in a child process only.
    """
    model, samples, _training = _read(workload)
    return model, at_batch(samples, batch) if batch else samples


def unspool_step(workload: Workload) -> tuple[Step, tuple[Sample, ...]]:
    """Return the user's unit of work, a call or a training step, and its samples, as `unspool` does."""
    model, samples, training = _read(workload)
    if training is None:
        return Call(model, device_type=workload.device_type), samples
    return TrainingStep(model, training, device_type=workload.device_type), samples


def _read(workload: Workload) -> tuple[Any, tuple[Sample, ...], Training | None]:
    if workload.settings is not None:
        apply_settings(workload.settings)
    if workload.device_type == "cuda":
        torch.cuda.set_device(workload.device)
    path = Path(workload.directory) / _FILE
    return torch.load(path, weights_only=False, pickle_module=revival)  # type: ignore[no-any-return]


def kept_inputs(path: Path) -> list[Any]:
    """Return the samples that `spool` wrote alone, in a form that `spool` accepts."""
    samples = torch.load(path, weights_only=False, pickle_module=revival)
    return [sample.kwargs or sample.args for sample in samples]


def at_batch(samples: Sequence[Sample], size: int) -> tuple[Sample, ...]:
    """Return the same calls with this batch size, repeated or cut along the first axes."""
    return tuple(resized(sample, first_axes(sample), size) for sample in samples)


def _check(model: Any, training: Training | None) -> None:
    if not callable(model):
        raise InvalidWorkload(
            f"a {type(model).__name__} cannot be called", where="model", remedy="give an nn.Module or a function"
        )
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise InvalidWorkload(
            "a TorchScript program cannot be compiled again",
            where="model",
            remedy="give the module that it was scripted or traced from",
        )
    if training is not None and not isinstance(model, nn.Module):
        raise InvalidWorkload(
            f"a {type(model).__name__} has no parameters to train", where="model", remedy="give an nn.Module"
        )


def _write(model: Any, samples: tuple[Sample, ...], training: Training | None, path: Path) -> None:
    inputs = "inputs" if training is None else "batches"
    for where, part in (("model", model), (inputs, samples), ("training", training)):
        fault = pickling_fault(part)
        if fault:
            culprit, reason = _culprit(part, where, reason=fault)
            raise InvalidWorkload(
                f"cannot be sent to another process: {reason}",
                where=culprit,
                remedy="build it inside forward(), or drop it in __getstate__",
            )
    torch.save((model, samples, training), path, pickle_module=pickling)


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


class _WithoutTensors(pickling.Pickler):
    """Tries to pickle something, without the cost of pickling the weights."""

    def persistent_id(self, obj: object) -> str | None:
        return "tensor" if isinstance(obj, torch.Tensor) and type(obj) in (torch.Tensor, nn.Parameter) else None


def pickling_fault(part: Any) -> str:
    """Return why something cannot be pickled, or ""."""
    try:
        _WithoutTensors(_Nowhere()).dump(part)
    except UsageError:  # its message is already complete
        raise
    except Exception as fault:  # whatever a user's __reduce__ raises
        return str(fault) or type(fault).__name__
    return ""


def _culprit(part: Any, where: str, *, reason: str, depth: int = 0) -> tuple[str, str]:
    """Follow the first attribute that cannot be pickled down to the deepest one."""
    if depth < 20:
        for name, value in _attributes(part):
            fault = pickling_fault(value)
            if fault:
                return _culprit(value, f"{where}{name}", reason=fault, depth=depth + 1)
    return where, reason


def _attributes(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, nn.Module):
        yield from ((f".{name}", child) for name, child in part.named_children())
    if isinstance(part, dict):
        yield from ((f"[{key!r}]", value) for key, value in part.items())
    elif isinstance(part, list | tuple):
        yield from ((f"[{position}]", value) for position, value in enumerate(part))
    elif getattr(part, "__closure__", None):
        names = part.__code__.co_freevars
        yield from ((f".{name}", cell.cell_contents) for name, cell in zip(names, part.__closure__, strict=True))
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        yield from ((f".{name}", value) for name, value in vars(part).items() if not name.startswith("_modules"))


def _imported_modules(path: Path) -> Iterator[str]:
    """Yield the names of the modules that unpickling imports, read from the pickle's opcodes."""
    with zipfile.ZipFile(path) as archive:
        pickle_name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        data = archive.read(pickle_name)
    seen: set[str] = set()
    for opcode, argument, _position in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module = str(argument).split(" ")[0]
            if module not in seen and module != "__main__":
                seen.add(module)
                yield module


def _name_of(model: Any) -> str:
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)


def _devices_of(model: Any, samples: tuple[Sample, ...]) -> list[torch.device]:
    """Return the devices of the model's and the samples' tensors, the computing one first.

    Without tensors, it is the CPU. The first device that is not the CPU computes. A model on a GPU may have buffers on
    the CPU, and take tensors from it.
    """
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    held = tensors_in([(sample.args, sample.kwargs) for sample in samples])
    devices = dict.fromkeys(tensor.device for tensor in (*tensors, *held))
    return sorted(devices, key=lambda device: device.type == "cpu") or [torch.device("cpu")]
