"""The summary that `autocompile run` prints when the script has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autocompile.core.document import Document
from autocompile.core.plan import EAGER
from autocompile.core.service import Service
from autocompile.core.words import TRAINS, words_of


def service_lines(
    document: Document, services: Sequence[Service], others: Mapping[str, str], *, raised: bool = False
) -> Iterator[str]:
    """Yield what was served and how fast, next to the recommendation's own figures; or why nothing was served.

    `raised`: whether the script ended with an exception.
    """
    if not services and raised and not others:
        yield "the script ended early, before it called what was tuned"
    elif not services:
        script = document.workload.script
        what = script.function if script and script.function else "the model that was tuned"
        yield f"the script did not call {what}{' as it was tuned' * (what in others)}, so nothing was changed"
        yield from (f"  {name}: {differs}" for name, differs in others.items())
    for service in services:
        yield _headline(service)
        yield from _times(document, service)
        yield from (f"  {_calls(calls)} not as recommended: {reason}" for reason, calls in service.left.items())
        yield from (f"  {note}" for note in service.notes)


def _calls(count: int) -> str:
    return f"{count:,} call{'s' * (count != 1)}"


def _headline(service: Service) -> str:
    words = words_of(service.kind)
    by = ", ".join(f"{calls:,} by {runtime}" for runtime, calls in service.calls.items())
    if not by:
        return f"{service.module}: no {words.one} was {'done as recommended' if service.kind in TRAINS else 'served'}"
    return f"{service.module} as {service.label}: {words.many} {by}"


def _times(document: Document, service: Service) -> Iterator[str]:
    if not service.calls:
        return
    one = words_of(service.kind).one
    # Training steps are not synchronized with the device, so on a GPU only the time of their launches is known.
    is_known = service.mean_ms is not None and (service.kind != "training" or document.workload.device == "cpu")
    mean = "" if not is_known else f"{service.mean_ms:.3g} ms a {one} after the first, "
    baseline = document.baseline.latency_ms
    # Nothing was changed, so a difference would only be noise.
    eager = (
        ""
        if baseline is None or service.label == EAGER
        else f"; eager took {baseline:.3g} ms a {one} when it was tuned"
    )
    included = "" if service.kind in TRAINS else ", loading included"
    yield f"  {mean}{service.first_s:.2g} s for the first one{included}{eager}"
