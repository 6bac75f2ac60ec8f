"""The output of `autocompile verify`."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.estimate import Estimate
from autocompile.report.generated import generated_words
from autocompile.report.learned import learned_words
from autocompile.search.recheck import Recheck

_WORDS = {
    "good": "still correct, and no slower than before (within noise)",
    "regression": "still correct, but slower than before, by more than noise explains",
    "unusable": "no longer usable on this machine; tune it again",
    "wrong": "no longer correct",
}


def recheck_lines(found: Recheck) -> Iterator[str]:
    """Yield the verdict, both speed-ups, and what differs on the host."""
    yield f"{found.label}: {_WORDS[found.verdict]}"
    now = _figure(found.now) if found.now else "not measured"
    yield f"  speed-up over eager: {_figure(found.then)} when it was tuned, {now} now"
    if found.learned is not None:
        yield f"  {learned_words(found.learned)}"
    if found.generated is not None:
        yield f"  {generated_words(found.generated)}"
    if found.then_as_configured:
        yield "  the artifact was not timed when it was packed, so the earlier speed-up is of compiling in the process"
    if found.fault:
        yield f"  {found.fault}"
    if found.noisy:
        yield "  the host was noisy during the measurement; repeat it on a quiet host"
    for change in found.changes:
        yield f"  {change}"


def _figure(speedup: Estimate) -> str:
    return f"{speedup.value:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})"
