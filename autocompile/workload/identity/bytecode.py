"""Read a function's bytecode: a digest that is equal for equal source, the names in it, and what it writes."""

from __future__ import annotations

import bisect
import dis
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator

from autocompile.workload.identity.plain import text_of

_READS_GLOBAL = frozenset({dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_NAME"], dis.opmap["IMPORT_NAME"]})
_STORES_OUTSIDE = frozenset({dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_DEREF"]})
_STORES_ATTRIBUTE = frozenset({dis.opmap["STORE_ATTR"]})
_READS_ATTRIBUTE = frozenset(
    dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR") if name in dis.opmap
)
_OF_THE_CALLING_CONVENTION = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "NOP", "EXTENDED_ARG"})
_ONE_INSTRUCTION = {"LOAD_METHOD": "LOAD_ATTR", "CALL_METHOD": "CALL"}
_NAMING = frozenset({*dis.hasname, *dis.haslocal, *dis.hasfree})
# The results for this many code objects are kept, because a model's code is searched several times.
_MOST_KEPT = 4096
_STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def digest_of(function: types.FunctionType) -> str:
    """Return 16 characters, equal for equal source in one version of Python, wherever and however it was compiled."""
    return _digest(function.__code__)


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield all names that a function's code and nested code mention, in the order of the code."""
    for one in _with_inner(code):
        yield from one.co_names


def globals_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the globals and modules that a function's code and nested code read or import, but no attributes."""
    return _named(code, _READS_GLOBAL)


def variables_stored(code: types.CodeType) -> tuple[str, ...]:
    """Return the globals and closure variables that the code writes. They are state, which calls change."""
    return _named(code, _STORES_OUTSIDE)


def attributes_stored(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the attributes, of any object, that the code writes."""
    return _named(code, _STORES_ATTRIBUTE)


def attributes_read(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the attributes, of any object, that the code reads."""
    return _named(code, _READS_ATTRIBUTE)


@functools.lru_cache(_MOST_KEPT)
def _digest(code: types.CodeType) -> str:
    return hashlib.sha256("\n".join(_lines(code)).encode()).hexdigest()[:16]


@functools.lru_cache(_MOST_KEPT)
def _named(code: types.CodeType, opcodes: frozenset[int]) -> tuple[str, ...]:
    return tuple(
        str(step.argval)
        for one in _with_inner(code)
        if not opcodes.isdisjoint(one.co_code[::2])  # a fast check that excludes most code
        for step in dis.get_instructions(one)
        if step.opcode in opcodes
    )


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _lines(code: types.CodeType) -> Iterator[str]:
    """Yield all that determines what code does.

    Line numbers and docstrings, which no instruction loads, are left out.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    yield f"{code.co_name} {code.co_varnames[:count]} {code.co_flags & _STARRED}"
    yield from _steps(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _lines(constant)


def _steps(code: types.CodeType) -> Iterator[str]:
    """Yield its instructions, without what depends on how the source was split up for compilation.

    For example, a call of `module.function()` is a different instruction if the import is compiled together with it. A
    notebook compiles statement by statement.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in _OF_THE_CALLING_CONVENTION]
    offsets = [step.offset for step in steps]
    for step in steps:
        name = _ONE_INSTRUCTION.get(step.opname, step.opname)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            yield f"{name} {bisect.bisect_left(offsets, step.argval)}"
        elif step.opcode in _NAMING:
            yield f"{name} {step.argval}"
        elif step.opcode in dis.hasconst:
            yield f"{name} {text_of(step.argval)}"
        else:
            yield f"{name} {step.arg}"
