"""A recommendation for reading in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autocompile.core.document import ArtifactEntry, Document, TrialEntry
from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.units import format_bytes, format_count, format_duration, format_ms
from autocompile.report.profile import profile_lines
from autocompile.report.story import story
from autocompile.search.ledger import measuring_share

WIDTH = 120
_STYLES = {"winner": "bold green", "baseline": "bold", "wrong result": "red", "failed": "red", "slower": "dim"}


def as_text(document: Document) -> str:
    """All of it as plain text, 120 columns wide."""
    console = Console(file=io.StringIO(), width=WIDTH, no_color=True)
    console.print(render(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def terminal() -> Console:
    """Standard output; where it is no terminal, wide enough for the table."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def as_lines(text: str) -> RenderableType:
    """Plain text, its lines wrapped where the terminal ends."""
    return Group(*_wrapped(text.splitlines(), 0))


def render(document: Document) -> RenderableType:
    """Verdict, table, profile, why, envelope, time and snippet."""
    return Group(
        _headline(document),
        "",
        trial_table(document),
        *_section("Not measured", _failure_lines(document)),
        *_section("Profile of the baseline", profile_lines(document.profile, document.workload)),
        *_section("Artifact", _artifact_lines(document.artifact)),
        *_section("Why", story(document)),
        *_section("Decisions", _decision_lines(document)),
        *_section("Best for how many calls", _envelope_lines(document)),
        *_section("Trade-offs", _trade_off_lines(document)),
        *_section("Where the time went", _time_lines(document)),
        *_section("The same in plain torch", document.snippet.strip().splitlines()),
    )


def _headline(document: Document) -> RenderableType:
    winner, gain = document.winner, document.winner.speedup
    assert gain is not None
    text = Text()
    text.append(f"{document.workload.name}: ", style="bold")
    if not document.is_feasible:
        text.append(document.reason, style="bold yellow")
        text.append(".")
    elif winner.number == document.baseline.number:
        text.append("leave it eager", style="bold green")
        text.append(f": nothing that keeps the goal was faster {_ranked_by(document)}.")
        plain = next((entry for entry in document.trials if entry.origin == "plain"), None)
        if plain is None or plain.failure is not None:
            reason = plain.failure.kind.replace("_", " ") if plain and plain.failure else "not tried"
            text.append(f" torch.compile itself was not measured ({reason}).", style="yellow")
    else:
        text.append(winner.label, style="bold green")
        text.append(
            f": {gain.value:.2f}x the speed of eager (95%: {gain.low:.2f} to {gain.high:.2f}), "
            f"{_ms(winner.latency_ms)} a call, {format_duration(winner.startup_s or 0)} to start."
        )
        if document.artifact.label == winner.label:
            text.append(_packed_words(document.artifact), style="green")
        text.append(_batch_words(document))
        text.append(_throughput_words(document))
    if not document.complete:
        text.append(" Stopped by hand: this is the best so far.", style="yellow")
    if winner.contamination and winner.contamination.noisy:
        text.append(
            f" The host was noisy: others took {winner.contamination.other_cpu_share:.0%} of its CPU time.",
            style="yellow",
        )
    return text


def _ranked_by(document: Document) -> str:
    goal = document.goal
    if goal.objective == "latency":
        return f"by p{goal.percentile} latency"
    if goal.objective == "throughput":
        return "in samples a second"
    start = "start-up included" if goal.deploy == "jit" else "started from an artifact"
    return f"over {format_count(document.calls)} calls, {start}"


def _batch_words(document: Document) -> str:
    winner, given = document.winner, document.winner_as_given
    if given is None or given.speedup is None:
        return ""
    if winner.batch is None:
        return " No other batch is better than yours."
    return f" Per sample, in batches of {winner.batch}; at your batch {given.label}: {given.speedup.value:.2f}x."


def _throughput_words(document: Document) -> str:
    rate, of = document.winner.samples_per_s, document.baseline.samples_per_s
    if document.goal.objective != "throughput" or rate is None or of is None:
        return ""
    return f" {format_count(rate)} samples a second; eager at your batch: {format_count(of)}."


def _packed_words(artifact: ArtifactEntry) -> str:
    if artifact.speedup is None or artifact.startup_s is None:
        return ""
    start = format_duration(artifact.startup_s)
    return f" Packed: {artifact.speedup.value:.2f}x, {start} to start (tier {artifact.tier})."


def trial_table(document: Document) -> Table:
    """Every trial, the measured by rank."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("rank", "configuration", "latency", "speed-up", "compile", "per call*", "error", "verdict"):
        number = name not in ("configuration", "verdict")
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for entry in document.trials:
        table.add_row(*_row(entry), style=_STYLES.get(entry.verdict, ""))
    per = "" if document.winner_as_given is None else "; speed-up and per call are for the samples of one given call"
    table.caption = f"* amortized over {format_count(document.calls)} calls, start-up included{per}"
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
        format_duration(entry.compile_s or 0.0) if entry.plan.compiles else "-",
        _ms(entry.amortized_ms),
        f"{entry.error:.1e}",
        entry.verdict,
    )


def _failure_lines(document: Document) -> Iterable[str]:
    for entry in document.trials:
        if entry.failure is not None:
            said = entry.failure.message.splitlines()[0]
            yield f"{entry.label}: {entry.failure.kind.replace('_', ' ')} in phase {entry.failure.stage}: {said}"


_TIER_WORDS = {
    "aot": "a compiled program: starts without compiling, and needs no compiler",
    "cache": "the compiler's cache, carried: compiles nothing anew, but starts the compiler",
    "jit": "the configuration alone: compiles at the first call",
    "eager": "the configuration alone: there is nothing to compile",
}


def _artifact_lines(artifact: ArtifactEntry) -> Iterable[str]:
    yield f"tier {artifact.tier}: {_TIER_WORDS[artifact.tier]}"
    if artifact.speedup is not None and artifact.startup_s is not None:
        yield (
            f"loaded {artifact.processes} times in fresh processes: {format_duration(artifact.startup_s)} to start, "
            f"{_ms(artifact.latency_ms)} a call, {_interval(artifact.speedup)} times the speed of eager, "
            f"error {artifact.error:.1e}"
        )
    for accepted in artifact.inputs:
        yield f"takes {accepted}"
    if artifact.inputs:
        yield "other calls are served by the fallback, and counted in module.status"
    for absence in artifact.absences:
        yield f"no tier {absence.tier}: {absence.reason}"
    if artifact.envelope:
        yield f"best for how many calls, with this start-up: {envelope_sentence(artifact.envelope)}"
    yield f"{format_bytes(artifact.size_bytes)}, {artifact.digest}"


def _decision_lines(document: Document) -> Iterable[str]:
    for decision in document.decisions:
        yield f"{format_duration(decision.at_s):>8}  {decision.action} {decision.subject}: {decision.reason}"


def _envelope_lines(document: Document) -> Iterable[str]:
    yield envelope_sentence(document.envelope)
    for segment in document.envelope[1:]:
        high = f"to {format_count(segment.from_high)}" if segment.from_high else "and beyond: perhaps never"
        yield (
            f"{segment.label} is ahead from {format_count(segment.from_calls)} calls on "
            f"(95%: {format_count(segment.from_low)} {high})"
        )


def envelope_sentence(segments: Sequence[Segment]) -> str:
    """`eager up to 210 calls; regional up to 2,600; then max-autotune`."""
    parts = []
    for position, segment in enumerate(segments):
        if segment.to_calls is None:
            parts.append(f"then {segment.label}" if position else f"{segment.label} for any number of calls")
        else:
            parts.append(f"{segment.label} up to {format_count(segment.to_calls)}{'' if position else ' calls'}")
    return "; ".join(parts)


def _trade_off_lines(document: Document) -> Iterable[str]:
    if len(document.trade_offs) < 2:
        return
    yield "nothing measured is as good as one of these in start-up, latency and memory, and better in one"
    for one in document.trade_offs:
        yield (
            f"{one.label}: {format_duration(one.startup_s)} to start, {_ms(one.latency_ms)} a call, "
            f"peak memory {format_bytes(one.peak_memory_bytes)}"
        )


def _time_lines(document: Document) -> Iterable[str]:
    total = sum(document.time_spent_s.values())
    for purpose, seconds in sorted(document.time_spent_s.items(), key=lambda item: -item[1]):
        yield f"{purpose:<12} {format_duration(seconds):>8}  {seconds / total:>4.0%}"
    other = (1 - measuring_share(document.time_spent_s)) * total
    yield (
        f"together {format_duration(total)} of {format_duration(document.budget_s)}; neither compiling, warming up, "
        f"verifying nor timing: {format_duration(other)}, {other / document.budget_s:.0%} of the budget"
    )


def _section(title: str, lines: Iterable[str]) -> Iterable[RenderableType]:
    body = _wrapped(lines, 2)
    return ("", Text(title, style="bold"), *body) if body else ()


def _wrapped(lines: Iterable[str], indent: int) -> list[Padding]:
    """What is indented stays so where it is wrapped."""
    stripped = [(line.lstrip(), len(line) - len(line.lstrip())) for line in lines]
    return [Padding(Text(line), (0, 0, 0, indent + own)) for line, own in stripped]


def _interval(speedup: Estimate) -> str:
    """With ± where that is true, else with both ends."""
    half = (speedup.high - speedup.low) / 2
    if half < speedup.value / 5:
        return f"{speedup.value:.2f} ± {half:.2f}"
    return f"{speedup.value:.2f} ({speedup.low:.2f} to {speedup.high:.2f})"


def _ms(value: float | None) -> str:
    return "-" if value is None else format_ms(value)
