"""What `autocompile verify` says."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.estimate import Estimate
from autocompile.report.generated import generated_words
from autocompile.report.learned import learned_words
from autocompile.search.recheck import Recheck

_WORDS = {
    "good": "still correct, and no slower than it was beyond noise",
    "regression": "correct, but slower than it was, beyond noise",
    "unusable": "not to be had on this machine any more; tune it again",
    "wrong": "no longer correct",
}


def recheck_lines(found: Recheck) -> Iterator[str]:
    """The verdict, both speed-ups, and what differs on the host."""
    yield f"{found.label}: {_WORDS[found.verdict]}"
    yield f"  speed-up over eager then {_figure(found.then)}, now {_figure(found.now) if found.now else 'not measured'}"
    if found.learned is not None:
        yield f"  {learned_words(found.learned)}"
    if found.generated is not None:
        yield f"  {generated_words(found.generated)}"
    if found.then_as_configured:
        yield "  the artifact was not timed when it was packed, so then is the configuration's own, compiled in process"
    if found.fault:
        yield f"  {found.fault}"
    if found.noisy:
        yield "  the host was noisy while this was measured; a quiet one says more"
    for change in found.changes:
        yield f"  {change}"


def _figure(speedup: Estimate) -> str:
    return f"{speedup.value:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})"
