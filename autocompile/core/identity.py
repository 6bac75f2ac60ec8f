"""The identity of a model: named facts, so that a message can name what differs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from autocompile.core.serde import Record, to_json, to_plain


class Identity(Record, frozen=True):
    """Facts about a model: short texts by name. The values of the weights are not included.

    The facts do not depend on where a class was defined: a script, `__main__`, a notebook and an installed package give
    the same facts.

    Attributes:
        modules: The class of each submodule, by path.
        tensors: Sizes and dtype of each parameter and buffer, by path.
        code: A digest of each function that a call may run, by qualified name.
        values: What that code uses from elsewhere: globals, closures, default arguments, class attributes.
        attributes: Plain attributes of modules that a call depends on, by path; `training` is one of them.
        python: The Python version whose code was digested, such as "3.11".
        state: What may be otherwise without a change of the code: plain values that a call may have set outside of
            modules, such as a global, and which attributes a module has in place of those of its class. Only of packed
            programs.
    """

    modules: dict[str, str] = {}
    tensors: dict[str, str] = {}
    code: dict[str, str] = {}
    values: dict[str, str] = {}
    attributes: dict[str, str] = {}
    python: str = ""
    state: dict[str, str] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the recorded code and of what it reads. Code of these names is the user's, wherever it is."""
        return frozenset({*self.code, *self.values, *self.state})

    @property
    def digest(self) -> str:
        """A digest that is equal for equal facts. State does not count."""
        facts = {name: fact for name, fact in to_plain(self).items() if name != "state"}
        return hashlib.sha256(to_json(facts)).hexdigest()


@dataclass(frozen=True)
class Difference:
    """A difference between two identities, in words; `kind` is the part of the identity that differs."""

    kind: Literal["modules", "tensors", "code", "values", "attributes"]
    message: str


def differences(then: Identity, now: Identity) -> list[Difference]:
    """Return all differences, the most important first.

    Submodules and tensors must be the same. Of code and values, only what was recorded is compared: code that calls new
    code has changed itself.
    """
    return [
        *_either(then.modules, now.modules),
        *_resized(then.tensors, now.tensors),
        *(Difference("code", words) for words in _other_code(then, now)),
        *(Difference("values", words) for words in _moved(then.values, now.values, "")),
        *moved_attributes(then.attributes, now.attributes),
        *(Difference("attributes", words) for words in _moved(then.state, now.state, "")),
    ]


def moved_attributes(then: Mapping[str, str], now: Mapping[str, str]) -> list[Difference]:
    """Return the attributes that have another value now, or no longer exist."""
    return [Difference("attributes", words) for words in _moved(then, now, "attribute ")]


def summary(found: list[Difference]) -> str:
    """Return the most important difference in words, and how many more there are; "" if there is none."""
    if not found:
        return ""
    more = len(found) - 1
    return found[0].message + (f" (and {more} more difference{'s' * (more != 1)})" if more else "")


def _other_code(then: Identity, now: Identity) -> Iterator[str]:
    if then.code and now.code and then.python != now.python:
        yield f"Python is {now.python}, was {then.python}, so the model's code cannot be compared"
        return
    for name, digest in then.code.items():
        if name not in now.code:
            yield f"{name} is not among the code that a call runs"
        elif now.code[name] != digest:
            yield f"the code of {name} has changed"


def _either(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    for path in {**then, **now}:
        where = path or "the model"
        if path not in now:
            yield Difference("modules", f"there is no {where}, which was of class {_short(then[path])}")
        elif path not in then:
            yield Difference("modules", f"{where} is new, of class {_short(now[path])}")
        elif then[path] != now[path]:
            one, other = _short(now[path]), _short(then[path])
            told = (now[path], then[path]) if one == other else (one, other)
            yield Difference("modules", f"{where} is of class {told[0]}, was {told[1]}")


def _short(class_name: str) -> str:
    return class_name.rpartition(".")[2]


def _resized(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    for path in {**then, **now}:
        if path not in now:
            yield Difference("tensors", f"there is no {path}")
        elif path not in then:
            yield Difference("tensors", f"{path} is new")
        elif then[path] != now[path]:
            (size, dtype), (old_size, old_dtype) = now[path].split(), then[path].split()
            same_size = size == old_size
            told = (dtype, old_dtype) if same_size else (size, old_size)
            yield Difference("tensors", f"{path} is {told[0]}, was {told[1]}")


def _moved(then: Mapping[str, str], now: Mapping[str, str], noun: str) -> Iterator[str]:
    for name, value in then.items():
        if name not in now:
            yield f"{noun}`{name}` is not there, was {value}"
        elif now[name] != value:
            described = f"`{name}`" if name.rpartition(".")[2] == "training" else f"{noun}`{name}`"
            yield f"{described} is {now[name]}, was {value}"
