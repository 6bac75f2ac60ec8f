"""The facts that identify a model: its structure, its code, and what its calls depend on, without the weights' values.

A model has the same identity however it was loaded: from a script that the command line ran, from `__main__`, a
notebook, a module, or a copy of the file elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from autocompile.core.identity import Identity
from autocompile.core.serde import to_json
from autocompile.core.workload import Signature
from autocompile.workload.capturing_hooks import ARE_INSTALLED
from autocompile.workload.identity.bytecode import attributes_read, attributes_stored, globals_in, names_in
from autocompile.workload.identity.code import Code, code_of
from autocompile.workload.identity.libraries import is_library
from autocompile.workload.identity.plain import text_of
from autocompile.workload.identity.state import state_texts

_TRAINING = "training"
# Torch's internal attributes, which every module has, and one of transformers.
_INTERNAL = (frozenset(vars(nn.Module())) - {_TRAINING}) | {ARE_INSTALLED}
_MISSING = object()
# How deeply settings within settings are searched.
_DEEPEST = 2


def identity_of(model: object) -> Identity:
    """Return all facts about a model, a function, or any other callable."""
    code = code_of(model)
    loaded = code.names
    stored = {name for function in code.reached for name in attributes_stored(function.__code__)}
    attributes = {
        name: text
        for root, top in code.roots.items()
        for path, module in top.named_modules()
        for name, text in _depended_on(joined(root, path), module, loaded, stored)
    }
    return _identity(model, code, attributes)


def identity_like(model: object, recorded: Identity) -> Identity:
    """Return a model's facts, with only the recorded attributes, and with state if any is recorded.

    It takes milliseconds and is compared when a model is loaded.
    """
    code = code_of(model, recorded.names)
    found = ((name, attribute_text(code.roots, name)) for name in recorded.attributes)
    identity = _identity(model, code, {name: text for name, text in found if text is not None})
    return msgspec.structs.replace(identity, state=state_texts(code)) if recorded.state else identity


def workload_fingerprint(identity: Identity, signatures: Sequence[Signature], training: str = "") -> str:
    """Return what identifies a workload: the model's identity, its inputs, and a digest of how it is trained."""
    return hashlib.sha256(identity.digest.encode() + to_json(list(signatures)) + training.encode()).hexdigest()


def attributes_of(path: str, module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the plain attributes of a module, including those of its plain objects (such as a `config`).

    Each comes with its path, the dictionary that holds it, and its name there.
    """
    for where, held, name in _attributes_of(path, module):
        if text_of(held[name]) is not None:
            yield where, held, name


def all_attributes(model: object) -> Iterator[tuple[str, Any]]:
    """Yield all attributes of a model's modules and of their plain objects, each with its path."""
    for root, top in roots_of(model).items():
        for path, module in top.named_modules():
            for where, held, name in _attributes_of(joined(root, path), module):
                if not _is_cached_property(module, name):
                    yield where, held[name]


def _attributes_of(path: str, module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    for where, held in ((path, vars(module)), *((where, vars(one)) for where, one in settings_of(path, module))):
        yield from ((joined(where, name), held, name) for name in list(held) if name not in _INTERNAL)


def settings_of(path: str, holder: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the plain objects that a module holds, and those that these hold, each with its path."""
    for name, value in vars(holder).items():
        if name not in _INTERNAL and is_settings(value) and value is not holder:
            yield joined(path, name), value
            if depth < _DEEPEST:
                yield from settings_of(joined(path, name), value, depth + 1)


def is_settings(value: Any) -> bool:
    """Return whether it is an object with attributes, and not a module, a tensor or code."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | torch.Tensor | types.ModuleType | types.MethodType)
        and text_of(value) is None
    )


def ignores_training(module: nn.Module) -> bool:
    """Return whether the module reads the training mode but computes the same in both: dropout with p=0."""
    return isinstance(module, _DropoutNd) and module.p == 0


def attribute_text(roots: Mapping[str, nn.Module], name: str) -> str | None:
    """Return the present value of the attribute at this path, or None if there is none."""
    place = held_at(roots, name)
    return None if place is None else text_of(place[0].get(place[1], _MISSING))


def attribute_texts(model: object) -> dict[str, str]:
    """Return the present values of all plain attributes, by path."""
    modules = ((joined(root, path), one) for root, top in roots_of(model).items() for path, one in top.named_modules())
    found = (
        (where, text_of(held[name]))
        for path, one in modules
        for where, held, name in attributes_of(path, one)
        if not _is_cached_property(one, name)
    )
    return {where: text for where, text in found if text is not None}


def _is_cached_property(module: nn.Module, name: str) -> bool:
    """Return whether an attribute is computed at its first use."""
    return isinstance(getattr(type(module), name, None), functools.cached_property)


def held_at(roots: Mapping[str, nn.Module], name: str) -> tuple[dict[str, Any], str] | None:
    """Return the dictionary that holds the attribute at a path, and its name there, or None if the path is gone."""
    first, _, rest = name.partition(".")
    parts = name.split(".") if "" in roots else rest.split(".")
    owner: Any = roots.get("", roots.get(first))
    for part in parts[:-1]:
        held = {} if owner is None else getattr(owner, "__dict__", {})
        owner = held.get("_modules", {}).get(part, held.get(part))
    return None if not hasattr(owner, "__dict__") else (vars(owner), parts[-1])


def outside_tensors(model: object, recorded: Identity | None = None) -> dict[str, Callable[[], Any]]:
    """Return what reads each tensor that is a global or a closure of a model's code, by the function and its name.

    Code that was `recorded` as the user's counts as such wherever it is installed now.
    """
    code = code_of(model, recorded.names if recorded else ())
    return {name: read for name, read in code.variables.items() if isinstance(read(), torch.Tensor)}


def attributes_read_by(model: object) -> set[str]:
    """Return the names of the attributes that the user's code reads in a call, and all names in library classes."""
    modules = (module for top in roots_of(model).values() for module in top.modules())
    classes: set[Any] = {type(module) for module in modules}
    code = code_of(model)
    own = {name for function in code.reached for name in attributes_read(function.__code__)}
    if "getattr" in code.names:
        own |= code.names
    return own.union(*(_library_code(cls).names for cls in classes if is_library(cls)))


def names_in_code_of(model: object) -> set[str]:
    """Return all names in the user's own code that a call may run."""
    return code_of(model).names


def roots_of(model: object) -> dict[str, nn.Module]:
    """Return the modules that a call runs, by name.

    A model itself is ""; modules that a function calls have their names.
    """
    return {"": model} if isinstance(model, nn.Module) else code_of(model).roots


def _identity(model: object, code: Code, attributes: dict[str, str]) -> Identity:
    modules, tensors = {}, {}
    if not isinstance(model, nn.Module):
        modules[""] = f"function {_name_of(model)}"
    for root, top in code.roots.items():
        for path, module in top.named_modules():
            modules[joined(root, path)] = _class_name(type(module))
        for path, tensor in (*top.named_parameters(), *top.named_buffers()):
            tensors[joined(root, path)] = f"{'x'.join(map(str, tensor.shape)) or 'scalar'} {_dtype(tensor)}"
    python = ".".join(platform.python_version_tuple()[:2]) if code.functions else ""
    return Identity(modules, tensors, code.functions, code.values, attributes, python)


def _name_of(model: object) -> str:
    if isinstance(model, functools.partial):
        return _name_of(model.func)
    return getattr(model, "__qualname__", "") or type(model).__qualname__


def _class_name(cls: type) -> str:
    """Return torch's classes with their module, and others without, because their module's name may differ."""
    return f"{cls.__module__}.{cls.__qualname__}" if cls.__module__.startswith("torch.") else cls.__qualname__


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def joined(root: str, path: str) -> str:
    """Return the path of something within a root. Either may be ""."""
    return ".".join(filter(None, (root, path)))


def _depended_on(path: str, module: nn.Module, loaded: set[str], stored: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the attributes that calls read and do not write.

    Attributes that calls write are state, such as a counter.
    """
    kind: Any = type(module)
    library = _library_code(kind) if is_library(kind) else None
    names = loaded if library is None else library.names
    written = stored if library is None else stored | library.stored
    for where, held, name in attributes_of(path, module):
        if name == _TRAINING and held is vars(module):
            depends = _TRAINING in names and not ignores_training(module)
        else:
            depends = name in names | loaded and name not in written
        text = text_of(held[name])
        if depends and text is not None:
            yield where, text


@dataclass(frozen=True)
class _LibraryCode:
    """The names that a library class mentions in code that `forward` reaches, and the attributes that it writes."""

    names: frozenset[str]
    stored: frozenset[str]


@functools.cache
def _library_code(cls: Any) -> _LibraryCode:
    """Search within the class, and in the helpers that it calls directly."""
    members: dict[str, types.FunctionType] = {}
    for base in reversed(cls.__mro__):
        if base is not nn.Module:
            members.update({n: m for n, m in vars(base).items() if isinstance(m, types.FunctionType)})
    names, stored, ready = set[str](), set[str](), ["forward"]
    for member in ready:
        if member in members:
            function = members[member]
            helpers = [function.__globals__.get(name) for name in globals_in(function.__code__)]
            codes = [function.__code__, *(h.__code__ for h in helpers if isinstance(h, types.FunctionType))]
            mentioned = {name for code in codes for name in names_in(code)}
            ready += [name for name in mentioned - names if name in members]
            names |= mentioned
            stored.update(attributes_stored(function.__code__))
    return _LibraryCode(frozenset(names), frozenset(stored))
