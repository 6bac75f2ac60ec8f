"""Explain from the compiler's own reasons why a program is recompiled: what differed, where, and what helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autocompile.core.outcome import FailureCause
from autocompile.runtime.explanations import RECOMPILES, in_words, matched
from autocompile.workload.capture.script import is_own

_REASON = re.compile(r"^\d+/\d+: ", re.MULTILINE)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
# After the guard comes the line of code that it comes from, or a hint.
_REMARK = re.compile(r"\s+#|\s+\(HINT|\n")
_CONTAINED = re.compile(r"\._(?:modules|buffers|parameters)\['([^']+)'\]")
_STANCE = re.compile(r"filename: '([^']+)', function name: '([^']+)'")


@dataclass(frozen=True)
class Recompiled:
    """What changed, in one line, and the cause, by which candidates with the same problem are recognized."""

    message: str
    cause: FailureCause


def legible(reason: str) -> str:
    """Reduce a reason of the compiler to its guard, with attributes as they are written in the model's code."""
    guard = _REMARK.split(reason.strip(), maxsplit=1)[0]
    guard = re.sub(r"L\['(\w+)'\]", r"\1", guard)
    guard = re.sub(r"dict\.keys\(([^()]*)\)", r"\1", guard)
    return _CONTAINED.sub(lambda found: f"[{found[1]}]" if found[1].isdigit() else f".{found[1]}", guard)


def reasons_in(message: str) -> list[str]:
    """Return the reasons in torch's message for a forbidden recompilation, or an empty list for any other message."""
    lines = [line.strip().removeprefix("- ") for line in message.splitlines()]
    parts = _REASON.split("\n".join(lines))
    return [part.strip() for part in parts[1:]]


def explained(reasons: Sequence[str], message: str) -> Recompiled:
    """Explain the compiler's reasons. `message` is the exception's message, which is used if there are no reasons."""
    if not reasons:
        return Recompiled(_without_reason(message), "")
    matches = [matched(RECOMPILES, legible(reason)) for reason in reasons]
    subjects = [(row.cause if row else "", groups[:1]) for row, groups in matches]
    (subject, times), *_ = Counter(subjects).most_common(1)
    position = len(subjects) - 1 - subjects[::-1].index(subject)  # the latest: the change had occurred before
    row = matches[position][0]
    said, advice = in_words(RECOMPILES, legible(reasons[position]))
    if row is not None and row.cause == "state changes" and times > 1:
        said = f"{_subject(said)} changes with every call"
    again = "and each change causes a recompilation"
    words = f"{said}, {again}{_place(reasons[position])}"
    return Recompiled(f"{words}; {advice}" if advice else words, row.cause if row else "")


def _subject(said: str) -> str:
    return said[: said.rindex("`") + 1]


def _place(reason: str) -> str:
    frames = [found for found in _FRAME.findall(reason) if is_own(found[0])]
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f" ({Path(file).name}:{line} in {function})"


def _without_reason(message: str) -> str:
    place = _STANCE.search(message)
    if place is None:
        return "it is recompiled again and again, and the compiler gives no reason"
    where = f"{place[2]} in {Path(place[1]).name}"
    return f"{where} was compiled during the timing, so calls run different code"
