"""Compare the winner with a script that uses autocast or compiles its model itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from autocompile.core.document import TrialEntry
from autocompile.core.estimate import Estimate
from autocompile.core.notices import Notice
from autocompile.core.plan import EAGER, Plan
from autocompile.core.units import format_ms
from autocompile.core.words import words_of
from autocompile.core.workload import ScriptEntry, Workload
from autocompile.runtime.catalogue import plain


def of_the_script_as_it_is(workload: Workload, measured: Sequence[TrialEntry]) -> Iterator[Notice]:
    """Yield a notice on what the script does now, if it differs from the baseline, and how the winner compares.

    The winner is the first of `measured`. Both were timed in pairs with the baseline, so the interval of their ratio
    combines both intervals.
    """
    script = workload.script
    if script is None or not (script.autocast or script.is_compiled):
        return
    now = plan_of(script)
    found = next((entry for entry in measured if entry.plan == now), None)
    compiles = ["compiles it"] if script.is_compiled else []
    casts = [f"casts it to {script.autocast}"] if script.autocast else []
    does = " and ".join(compiles + casts)
    if found is None or found.speedup is None or measured[0].speedup is None:
        yield Notice("as it is", f"the script itself {does}: its speed was not measured")
        return
    one = words_of(workload.kind).one
    takes = f"{format_ms(found.latency_ms)} a {one}" if found.latency_ms is not None else "measured"
    ratio = _over(measured[0].speedup, found.speedup)
    beside = f"the winner is {ratio.value:.2f}x as fast (95%: {ratio.low:.2f} to {ratio.high:.2f})"
    beside = "which is the winner" if found is measured[0] else beside
    yield Notice("as it is", f"the script itself {does} ({found.label}, {takes}): {beside}")


def plan_of(script: ScriptEntry) -> Plan:
    """Return the plan of what the script does now."""
    return Plan(runtime=plain().name if script.is_compiled else EAGER, autocast=script.autocast)


def _over(one: Estimate, other: Estimate) -> Estimate:
    return Estimate.around(one.value / other.value, math.hypot(one.relative_halfwidth, other.relative_halfwidth))
