"""The full report, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autocompile.core.document import Document, TrialEntry
from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.notices import disturbance
from autocompile.core.units import format_bytes, format_count, format_duration, format_ms
from autocompile.core.words import Words, words_of
from autocompile.report.delivery import artifact_notes, packed_words, start_of_training
from autocompile.report.generated import generated_lines
from autocompile.report.lanes import lane_lines
from autocompile.report.learned import learned_lines
from autocompile.report.limits import all_break, verdict_words
from autocompile.report.plain import plain_text
from autocompile.report.profile import profile_lines
from autocompile.report.prompts import prompts_lines, prompts_words
from autocompile.report.story import story
from autocompile.report.whole_script import whole_script_words
from autocompile.search.ledger import measuring_share

_STYLES = {
    "winner": "bold green",
    "nearest": "bold yellow",
    "baseline": "bold",
    "beyond a limit": "yellow",
    "wrong result": "red",
    "failed": "red",
    "slower": "dim",
}


def as_text(document: Document) -> str:
    """Return the full report as plain text, 120 columns wide."""
    return plain_text(render(document))


def as_lines(text: str) -> RenderableType:
    """Return plain text whose lines are wrapped to the width of the terminal."""
    return Group(*_wrapped(text.splitlines(), 0))


def render(document: Document) -> RenderableType:
    """Return the full report."""
    return Group(
        headline(document),
        *section("What to know", document.notices),
        "",
        trial_table(document),
        *section("Not measured", _failure_lines(document)),
        *section("Trained", learned_lines(document.trials)),
        *section("Generated", (*generated_lines(document.trials), *prompts_lines(document))),
        *section("Profile of the baseline", profile_lines(document.profile, document.workload)),
        *section("Start" if document.workload.training else "Artifact", artifact_lines(document)),
        *section("Why", story(document)),
        *section("Decisions", _decision_lines(document)),
        *section(f"Best for how many {words_of(document.workload.kind).many}", _envelope_lines(document)),
        *section("Trade-offs", _trade_off_lines(document)),
        *section("Where the time went", _time_lines(document)),
        *section("Lanes", lane_lines(document)),
        *section("The same in plain torch", document.snippet.strip().splitlines()),
    )


def headline(document: Document) -> RenderableType:
    """Return the verdict, and what `load` will serve."""
    winner, gain = document.winner, document.winner.speedup
    assert gain is not None
    text = Text()
    text.append(f"{document.workload.name}: ", style="bold")
    if not document.is_feasible:
        text.append(document.reason, style="bold yellow")
        text.append(".")
    elif winner.number == document.baseline.number:
        text.append("leave it eager", style="bold green")
        text.append(f": {document.reason}.")
        plain = next((entry for entry in document.trials if entry.origin == "plain"), None)
        if plain is None or plain.failure is not None:
            text.append(f" torch.compile itself was not measured ({_why_unmeasured(document, plain)}).", style="yellow")
    else:
        text.append(winner.label, style="bold green")
        text.append(
            f": {gain.value:.2f}x the speed of eager (95%: {gain.low:.2f} to {gain.high:.2f}), "
            f"{_ms(winner.latency_ms)} a {words_of(document.workload.kind).one}, "
            f"{format_duration(winner.startup_s or 0)} to start."
        )
        text.append(_batch_words(document))
        text.append(_throughput_words(document))
        text.append(whole_script_words(document))
    text.append(prompts_words(document))
    if document.open_to:
        text.append(f" The verdict is open: no final for {', '.join(document.open_to)}.", style="yellow")
    is_good = document.artifact.start == "load" or bool(document.workload.training)
    text.append(packed_words(document), style="green" if is_good else "yellow")
    if not document.complete:
        text.append(f" Stopped: {document.stopped or 'early'}; this is the best so far.", style="yellow")
    if winner.contamination and winner.contamination.noisy:
        text.append(f" The host was noisy: {disturbance(winner.contamination)}.", style="yellow")
    return text


def _why_unmeasured(document: Document, plain: TrialEntry | None) -> str:
    """Return why plain `torch.compile` was not measured; if time was the reason, with the seconds."""
    failure = plain.failure if plain else None
    if failure is not None and failure.kind != "timeout":
        return failure.kind.replace("_", " ")
    subject = plain.label if plain else "torch.compile"
    said = [d.reason for d in document.decisions if d.subject == subject and d.action in ("skipped", "stopped")]
    return said[0] if said else ("timeout" if failure else "not tried")


def _batch_words(document: Document) -> str:
    winner, given = document.winner, document.winner_as_given
    if given is None or given.speedup is None:
        return ""
    if winner.batch is None:
        return " No other batch size is better than yours."
    words = f" Per sample, in batches of {winner.batch}; at your batch size {given.label}: {given.speedup.value:.2f}x."
    other = " Another batch size changes what a step learns: check your loss, and perhaps adjust the learning rate."
    return words + other if document.workload.training else words


def _throughput_words(document: Document) -> str:
    rate, of = document.winner.samples_per_s, document.baseline.samples_per_s
    if document.goal.objective != "throughput" or rate is None or of is None:
        return ""
    return f" {format_count(rate)} samples a second; eager at your batch size: {format_count(of)}."


def trial_table(document: Document, entries: Sequence[TrialEntry] | None = None) -> Table:
    """Return a table of all trials, or of these entries."""
    table, words = Table(box=None, header_style="bold", pad_edge=False), words_of(document.workload.kind)
    for name in ("rank", "configuration", "latency", "speed-up", "compile", f"per {words.one}*", "error", "verdict"):
        number = name not in ("configuration", "verdict")
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for entry in document.trials if entries is None else entries:
        table.add_row(*_row(entry), style=_STYLES.get(entry.verdict, ""))
    per = "" if document.winner_as_given is None else "; speed-up and per call are for the samples of one given call"
    table.caption = f"* amortized over {format_count(document.calls)} {words.many}, start-up included{per}"
    table.caption_justify = "left"
    return table


def _row(entry: TrialEntry) -> tuple[str, ...]:
    if entry.failure is not None:
        return ("", entry.label, "", "", "", "", "", entry.failure.kind.replace("_", " "))
    assert entry.speedup is not None
    return (
        str(entry.rank),
        entry.label,
        _ms(entry.latency_ms),
        "1" if entry.origin == "baseline" else _interval(entry.speedup),
        format_duration(entry.compile_s or 0.0) if not entry.plan.is_eager else "-",
        _ms(entry.amortized_ms),
        f"{entry.error:.1e}",
        verdict_words(entry),
    )


def _failure_lines(document: Document) -> Iterable[str]:
    for entry in document.trials:
        if entry.failure is not None:
            said = entry.failure.message.splitlines()[0]
            yield f"{entry.label}: {entry.failure.kind.replace('_', ' ')} in phase {entry.failure.stage}: {said}"


_START_WORDS = {
    "load": "a compiled program: starts without compiling, and needs no compiler",
    "cache": "the packed compiler cache: compiles nothing again, but starts the compiler",
    "compile": "the configuration alone: compiles at the first call",
    "none": "the configuration alone: there is nothing to compile",
}


def artifact_lines(document: Document) -> Iterable[str]:
    """Yield what was packed, how it was measured, and which calls it takes."""
    artifact, winner, words = document.artifact, document.winner, words_of(document.workload.kind)
    if document.workload.training:
        yield from start_of_training(document)
        return
    yield f"{artifact.serving}: {_START_WORDS[artifact.start]}"
    if artifact.untimed:
        yield f"packed and verified, but not timed after loading: {artifact.untimed}"
    elif artifact.serving.is_packed:
        made = f"; {format_duration(winner.compile_s or 0.0)} to compile, once" if winner.packing_s else ""
        count = f"{winner.processes} process{'es' * (winner.processes != 1)}"
        yield f"{count} loaded it; {format_duration(winner.startup_s or 0.0)} to start{made}"
    yield from artifact_notes(artifact)
    if len(artifact.envelope) > 1:
        yield f"best for how many calls, with this start-up: {envelope_sentence(artifact.envelope, words)}"
    size = f"{format_bytes(artifact.size_bytes)}, " if artifact.size_bytes else ""
    yield f"{size}{artifact.digest}"


def _decision_lines(document: Document) -> Iterable[str]:
    for decision in document.decisions:
        yield f"{format_duration(decision.at_s):>8}  {decision.action} {decision.subject}: {decision.reason}"


def _envelope_lines(document: Document) -> Iterable[str]:
    words = words_of(document.workload.kind)
    yield envelope_sentence(document.envelope, words) if document.is_feasible else all_break(document)
    for before, segment in pairwise(document.envelope):
        yield _break_even_line(before, segment, words)


def _break_even_line(before: Segment, segment: Segment, words: Words) -> str:
    if segment.break_even is None:
        why = "preferred from there on because it is simpler or starts faster"
        return f"{segment.label} is not faster per {words.one} than {before.label}, but {why}"
    if segment.break_even == 1:
        sure = f"preferred from {format_count(segment.from_calls)} on, where the difference exceeds the noise"
        return f"{segment.label} measures faster than {before.label} from the first {words.one} on, and is {sure}"
    high = f"to {format_count(segment.from_high)}" if segment.from_high else "or more, perhaps never"
    after = f"{format_count(segment.break_even)} {words.many} (95%: {format_count(segment.from_low)} {high})"
    return f"{segment.label} breaks even with {before.label} after {after}"


def envelope_sentence(segments: Sequence[Segment], words: Words) -> str:
    """Return a sentence such as `eager up to 210 calls; regional up to 2,600; then max-autotune`."""
    parts = []
    for position, segment in enumerate(segments):
        if segment.to_calls is None:
            parts.append(f"then {segment.label}" if position else f"{segment.label} for any number of {words.many}")
        else:
            unit = "" if position else f" {words.counted(segment.to_calls)}"
            parts.append(f"{segment.label} up to {format_count(segment.to_calls)}{unit}")
    return "; ".join(parts)


def _trade_off_lines(document: Document) -> Iterable[str]:
    if len(document.trade_offs) < 2:
        return
    words = words_of(document.workload.kind)
    first = "the winner" if document.is_feasible else "the nearest candidate"
    yield f"{first}, and all candidates that no other matches in start-up, latency and memory at once"
    for one in document.trade_offs:
        yield (
            f"{one.label}: {format_duration(one.startup_s)} to start, {_ms(one.latency_ms)} a {words.one}, "
            f"peak memory {format_bytes(one.peak_memory_bytes)}{'' if one.is_feasible else ' (beyond a limit)'}"
        )


def _time_lines(document: Document) -> Iterable[str]:
    total = sum(document.time_spent_s.values())
    for purpose, seconds in sorted(document.time_spent_s.items(), key=lambda item: -item[1]):
        yield f"{purpose:<12} {format_duration(seconds):>8}  {seconds / total:>4.0%}"
    other = (1 - measuring_share(document.time_spent_s)) * total
    yield (
        f"in total {format_duration(total)} of {format_duration(document.budget_s)}; all but compiling, warming up, "
        f"verifying and timing: {format_duration(other)}, {other / document.budget_s:.0%} of the budget"
    )


def section(title: str, lines: Iterable[str]) -> Iterable[RenderableType]:
    """Return a title and its lines; nothing if there are no lines."""
    body = _wrapped(lines, 2)
    return ("", Text(title, style="bold"), *body) if body else ()


def _wrapped(lines: Iterable[str], indent: int) -> list[Padding]:
    """Wrap lines; the continuation of an indented line is indented in the same way."""
    stripped = [(line.lstrip(), len(line) - len(line.lstrip())) for line in lines]
    return [Padding(Text(line), (0, 0, 0, indent + own)) for line, own in stripped]


def _interval(speedup: Estimate) -> str:
    """Return the value with ±, or with both ends if the interval is too wide to be nearly symmetric."""
    half = (speedup.high - speedup.low) / 2
    if half < speedup.value / 5:
        return f"{speedup.value:.2f} ± {half:.2f}"
    return f"{speedup.value:.2f} ({speedup.low:.2f} to {speedup.high:.2f})"


def _ms(value: float | None) -> str:
    return "-" if value is None else format_ms(value)
