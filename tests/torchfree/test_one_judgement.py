"""All parts of a report come from one judgement: checked with random studies and other judges."""

import math
import random
import re
from dataclasses import dataclass
from itertools import pairwise

from builders import failure
from fakes import FakeClock, FakeRunner, packs_a_program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_search import run, usual
from verdicts import is_undecided

from autocompile.artifact.integrity import open_manifest
from autocompile.core.envelope import at_calls as segment_at
from autocompile.core.estimate import Estimate
from autocompile.core.goal import Goal
from autocompile.report.story import story
from autocompile.report.text import as_text
from autocompile.search.judge.contender import Contender, beats, dominates
from autocompile.search.judge.standings import at_calls
from autocompile.search.judge.verdict import judge
from autocompile.search.strategy import load_strategy

SEVERAL_CALLS = (1, 2, 10, 300, 5_000, 10**5, 10**7)


def contender(number, *, ratio, startup_s, changes, half=0.02, **fields):
    baseline = number == 0
    estimate = Estimate(1.0, 1.0, 1.0) if baseline else Estimate.around(ratio, half)
    given = {"processes": 3, "is_finalist": True, **fields}
    return Contender(
        number=number,
        label="eager" if baseline else f"candidate {number}",
        origin="baseline" if baseline else "search",
        changes=0 if baseline else changes,
        ratio=estimate,
        latency_s=estimate.scaled(0.01),
        startup_s=0.0 if baseline else startup_s,
        **given,
    )


excesses = st.one_of(st.just({}), st.floats(-0.5, 0.5).map(lambda share: {"max_latency": share}))
# Only a few values for each field, so that equal values and ties are common.
others = st.fixed_dictionaries(
    {
        "ratio": st.one_of(st.sampled_from([0.4, 0.5, 0.51, 0.52, 1.0, 1.1]), st.floats(0.1, 3.0)),
        "startup_s": st.one_of(st.sampled_from([0.0, 0.1, 8.0, 8.3, 10.0]), st.floats(0.0, 100.0)),
        "changes": st.integers(1, 4),
        "half": st.sampled_from([0.005, 0.02, 0.05, 0.3]),
        "floor": st.sampled_from([0.0, 0.01, 0.05]),
        "is_finalist": st.booleans(),
        "excess": excesses,
        "noisy": st.sampled_from([False, False, False, True]),
    }
)


@st.composite
def fields_of_contenders(draw):
    first = contender(0, ratio=1.0, startup_s=0.0, changes=0, is_finalist=draw(st.booleans()), excess=draw(excesses))
    return [first, *(contender(n, **each) for n, each in enumerate(draw(st.lists(others, max_size=9)), 1))]


margins = st.sampled_from([0.01, 0.05, 0.05, 0.6])
calls_made = st.one_of(st.integers(1, 10**7), st.just(math.inf))


@settings(max_examples=300, deadline=None)
@given(fields_of_contenders(), calls_made, margins)
def test_nobody_loses_to_one_that_is_no_better_in_any_column(contenders, calls, margin):
    verdict = judge(contenders, calls, margin)
    assert verdict.ranking[0] is verdict.winner
    assert sorted(c.number for c in verdict.ranking) == [c.number for c in contenders]
    assert verdict.is_feasible == verdict.winner.is_feasible == any(c.is_feasible for c in contenders)
    if not verdict.is_feasible:
        return
    better = [c for c in contenders if c.is_feasible and not c.noisy and dominates(c, verdict.winner, calls)]
    if not verdict.winner.noisy and margin < 0.5:
        assert {c.number for c in better} <= {c.number for c in verdict.owed}
    if verdict.owed and margin < 0.5 and "tune again while the host is quiet" not in verdict.reason:
        assert "the verdict is open" in verdict.reason
        assert all(c.label in verdict.reason for c in verdict.owed)
    if "simplest of them" in verdict.reason:
        assert all(verdict.winner.changes < c.changes for c in verdict.tied if c is not verdict.winner)


@settings(max_examples=300, deadline=None)
@given(fields_of_contenders(), calls_made, margins)
def test_the_envelope_is_the_judgement_for_every_number_of_calls(contenders, calls, margin):
    envelope = judge(contenders, calls, margin).envelope
    assert (envelope[0].from_calls, envelope[-1].to_calls) == (1, None)
    assert all(before.to_calls == after.from_calls - 1 for before, after in pairwise(envelope))
    labels = [segment.label for segment in envelope]
    assert len(set(labels)) == len(labels), "nobody comes back who was left"
    for some in (*SEVERAL_CALLS, *(segment.from_calls for segment in envelope), min(calls, 10**9)):
        again = judge(contenders, some, margin)
        assert again.winner.label == segment_at(envelope, some).label
        assert again.envelope == envelope
    feasible = {c.label for c in contenders if c.is_feasible}
    assert not feasible or set(labels) <= feasible


@settings(max_examples=200, deadline=None)
@given(fields_of_contenders(), st.integers(1, 10**7))
def test_whoever_is_called_faster_than_eager_keeps_eager_from_winning(contenders, calls):
    verdict = judge(contenders, calls, 0.02)
    eager = contenders[0]
    faster = [c for c in contenders if c.is_feasible and beats(c, eager, calls)]
    if faster and "at exactly this number of calls" not in verdict.reason:
        assert verdict.winner is not eager


def test_who_is_dominated_does_not_win_because_its_own_interval_is_wide():
    """The best beats the simple one beyond the noise, and not the one that is worse than that in every column."""
    best = contender(1, ratio=0.40, startup_s=8.0, changes=3)
    simple = contender(2, ratio=0.50, startup_s=8.0, changes=1)
    worse = contender(3, ratio=0.55, startup_s=9.0, changes=1, half=0.6)
    contenders = [contender(0, ratio=1.0, startup_s=0.0, changes=0), best, simple, worse]
    assert beats(best, simple, 10**6)
    assert not beats(best, worse, 10**6)
    assert judge(contenders, 10**6, 0.02).winner is best


def test_eager_does_not_win_because_the_quickest_was_measured_coarsely():
    quick = contender(1, ratio=0.60, startup_s=8.0, changes=2, half=0.7)
    sure = contender(2, ratio=0.61, startup_s=8.0, changes=1)
    eager = contender(0, ratio=1.0, startup_s=0.0, changes=0)
    assert not beats(quick, eager, 10**6)
    assert judge([eager, quick, sure], 10**6, 0.02).winner is sure


def test_a_verdict_that_rests_on_a_missing_final_is_called_open():
    """The case that was seen: 1.97 ms and two changes won over 1.72 ms and one, for want of a final."""
    eager = contender(0, ratio=1.0, startup_s=0.0, changes=0)
    freezing = contender(1, ratio=0.74, startup_s=15.4, changes=2, half=0.03)
    plain = contender(2, ratio=0.68, startup_s=14.9, changes=1, half=0.09, is_finalist=False, processes=1)
    verdict = judge([eager, freezing, plain], 10**6, 0.05)
    assert [c.label for c in verdict.owed] == ["candidate 2"]
    assert "candidate 2 reads as good or better in every column, but was measured only once" in verdict.reason
    assert "simplest" not in verdict.reason


def test_a_start_that_is_not_notably_sooner_makes_nobody_faster():
    eager, other = (contender(n, ratio=1.0, startup_s=0.0, changes=1) for n in (0, 1))
    slow_start = [contender(0, ratio=1.0, startup_s=0.0, changes=0), other]
    assert not beats(other, contender(2, ratio=1.0, startup_s=0.3, changes=1), 1)
    assert beats(other, contender(2, ratio=1.0, startup_s=0.6, changes=1), 1)
    assert judge(slow_start, 1, 0.02).winner.label == eager.label


@dataclass
class Nature:
    """What a random study's candidates really are, and how processes differ by."""

    seed: int
    noise: float
    memory: bool
    noisy_host: float
    kinds: int

    def __post_init__(self):
        self.drawn = random.Random(self.seed)
        self.kept = {}

    def truth(self, plan):
        """Some plans are of one kind and so nearly alike, some fail."""
        if plan.key not in self.kept:
            one = random.Random(f"{self.seed} {plan.key}")
            kind = random.Random(f"{self.seed} {one.randrange(self.kinds)}")
            if plan.is_eager:
                ratio, startup_s = kind.choice([1.0, 1.0, 0.9, 1.3]), one.uniform(0.0, 0.1)
            else:
                ratio, startup_s = kind.uniform(0.3, 1.3), kind.uniform(2.0, 20.0) * one.uniform(0.9, 1.1)
            fails = one.random() < 0.1
            self.kept[plan.key] = failure("wrong_result", "verify", "output is off") if fails else (ratio, startup_s)
        return self.kept[plan.key]

    def __call__(self, plan):
        if plan.key == replace(plan, batch=0).key and plan.is_eager and not plan.autocast and not plan.threads:
            return 1.0, 0.05
        found = self.truth(plan)
        if not isinstance(found, tuple):
            return found
        ratio, startup_s = found
        return ratio * math.exp(self.drawn.gauss(0.0, self.noise)), startup_s


class NoisyRunner(FakeRunner):
    """Some processes are timed beside others, and each takes its memory."""

    def measure(self, task, limits):
        reply = super().measure(task, limits)
        if not hasattr(reply, "ratio"):
            return reply
        drawn, nature = self.answer.drawn, self.answer
        contamination = replace(reply.contamination, noisy=drawn.random() < nature.noisy_host)
        memory = (1 << 20) * (drawn.choice([1, 2, 3]) if nature.memory else 1)
        return replace(reply, contamination=contamination, peak_memory_bytes=memory)


natures = st.builds(
    Nature,
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([0.0, 0.01, 0.05]),
    memory=st.booleans(),
    noisy_host=st.sampled_from([0.0, 0.0, 0.0, 0.3, 1.0]),
    kinds=st.sampled_from([2, 5, 1000]),
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "max_latency": st.sampled_from(["3ms", "6ms", "9ms", "12ms"]),
        "max_startup": st.sampled_from(["4s", "10s"]),
        "max_memory": st.sampled_from(["1MiB", "2MiB"]),
    },
)


@st.composite
def goals(draw):
    constraints = draw(st.one_of(st.just({}), limits))
    objective = draw(st.sampled_from(["time", "time", "time", "latency", "throughput"]))
    if objective != "time":
        return Goal(objective=objective, **constraints)
    calls = draw(st.sampled_from([1, 100, 1000, 3000, 10**5, 10**6]))
    return Goal(calls=calls, deploy=draw(st.sampled_from(["jit", "artifact"])), **constraints)


@st.composite
def studies(draw):
    """A run of a random workload, its budget cut at random, and what it left."""
    nature, goal = draw(natures), draw(goals())
    packs = draw(st.sampled_from([packs_a_program, lambda _task: failure("unsupported", "pack", "no")]))
    runner = NoisyRunner(nature, FakeClock(), packs=packs)
    budget_s = draw(st.floats(25.0, 1500.0))
    strategy = draw(st.sampled_from(["quick", "balanced"]))
    document, _ = run(runner=runner, goal=goal, budget_s=budget_s, strategy=strategy)
    return document, runner


def measured(document):
    return [entry for entry in document.trials if entry.status == "measured"]


def keeps(entry):
    return all(share <= 0 for share in entry.excess.values())


def columns(entry):
    return entry.amortized_ms, entry.paired_ms.value, entry.startup_s + entry.packing_s, entry.changes


def betters(document):
    """Who keeps the goal, and reads as good as the winner in every column and better in one."""
    mine = columns(document.winner)
    for entry in measured(document):
        theirs = columns(entry)
        if keeps(entry) and theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True)):
            yield entry


def check_table(document):
    entries = measured(document)
    assert entries[0] == document.winner
    assert [entry.rank for entry in entries] == list(range(1, len(entries) + 1))
    word = "winner" if document.is_feasible else "nearest"
    assert [e.number for e in entries if e.verdict in ("winner", "nearest")] == [document.winner.number]
    assert document.winner.verdict == word
    assert document.is_feasible == keeps(document.winner) == any(map(keeps, entries))
    for entry in entries:
        if not keeps(entry):
            assert entry.verdict in ("beyond a limit", "nearest")
    if document.winner.origin == "baseline" and document.is_feasible and document.margin < 0.5:
        faster = [e for e in entries if e.verdict == "faster"]
        assert not faster or "at exactly this number of calls" in document.reason


def check_reason(document):
    text = " ".join(as_text(document).split())
    told = "\n".join(story(document))
    if not document.is_feasible:
        assert f"{document.winner.label} comes nearest" in text
        assert "The winner is" not in told
        assert " wins" not in told
        return
    if document.winner.origin == "baseline":
        assert f"{document.workload.name}: leave it eager" in text
        assert "Eager wins" in told
    else:
        assert text.startswith(f"{document.workload.name}: {document.winner.label}: ")
        assert f"The winner is {document.winner.label}: " in told
    simplest = re.search(r"not distinguishable from (.*), and the simplest of them", document.reason)
    if simplest:
        changes = {entry.label: entry.changes for entry in measured(document)}
        assert all(document.winner.changes < changes[label] for label in simplest[1].split(", "))
    disturbed = is_undecided(document.reason)
    for entry in betters(document):
        assert disturbed or entry.noisy or ("the verdict is open" in document.reason and not entry.is_finalist)


def check_envelope(document):
    labels = [segment.label for segment in document.envelope]
    by_label = {entry.label: entry for entry in measured(document)}
    if document.is_feasible:
        assert all(keeps(by_label[label]) for label in labels)
    else:
        assert labels == [document.winner.label]
        assert "all measured candidates are beyond a limit" in " ".join(as_text(document).split())
    if document.goal.objective == "time":
        assert segment_at(document.envelope, document.calls).label == document.winner.label
    for calls in SEVERAL_CALLS:
        again = at_calls(document, calls)
        assert again.winner.label == segment_at(document.envelope, calls).label
        check_table(again)
        check_trade_offs(again)


def check_trade_offs(document):
    by_label = {entry.label: entry for entry in measured(document)}
    assert document.winner.label in {one.label for one in document.trade_offs}
    for one in document.trade_offs:
        assert one.is_feasible == keeps(by_label[one.label])
    marked = [line for line in as_text(document).splitlines() if "(beyond a limit)" in line or "beyond max_" in line]
    assert bool(marked) == any(not keeps(entry) for entry in measured(document))


def packed_label(manifest):
    return f"{manifest.label}, packed"


def excess_when_served(document, manifest, label):
    """By constraint, how far what the artifact serves under this label is beyond it, as it is served."""
    own = label in (packed_label(manifest), manifest.label)
    entry = document.winner if own else next(entry for entry in measured(document) if entry.label == label)
    served = next(one for one in manifest.served if one.label == entry.label)
    assert math.isclose(served.startup_s, entry.startup_s) or not own, "the winner is what is served"
    excess = dict(entry.excess)
    if document.goal.max_startup_s is not None:
        excess["max_startup"] = served.startup_s / document.goal.max_startup_s - 1
    return excess


def check_artifact(document, runner):
    """What `load` serves is the winner, and what `load(calls=)` serves keeps the goal as it is served."""
    manifest = open_manifest(runner.directory)
    own = manifest.served[0]
    assert (manifest.label, document.artifact.label) == (document.winner.label, document.winner.label)
    assert (own.label, own.plan, own.serving) == (document.winner.label, document.winner.plan, manifest.serving)
    assert own.speedup == document.winner.speedup
    labels = [segment.label for segment in manifest.envelope]
    assert {*labels} <= {packed_label(manifest), *(one.label for one in manifest.served)}
    broken = [
        label for label in labels if any(share > 0 for share in excess_when_served(document, manifest, label).values())
    ]
    if broken:
        assert labels == broken, "what is beyond a limit is served only where nothing else is left"
        assert len(labels) == 1
        assert not keeps(document.baseline)
    if document.goal.deploy == "jit":
        for calls in SEVERAL_CALLS:
            assert segment_at(manifest.envelope, calls).label == segment_at(document.envelope, calls).label


def test_load_takes_the_packed_winner_at_the_goals_own_number_of_calls():
    for calls in (10**5, 10**7):
        runner = FakeRunner(usual, FakeClock(), packs=packs_a_program)
        document, _ = run(runner=runner, goal=Goal(calls=calls), budget_s=3000)
        manifest = open_manifest(runner.directory)
        assert document.winner.plan.is_eager is False
        assert manifest.label == document.winner.label
        assert segment_at(manifest.envelope, calls).label == packed_label(manifest)


def seen_before(plan, ran):
    """Of the case that was seen: freezing reads well when it is screened, and worse in every process after that."""
    if plan.is_eager:
        return 1.0, 0.0
    if not plan.settings.get("options", {}).get("freezing"):
        return 0.68, 14.9
    return (0.81 if plan.key in ran else 0.575), 15.4


def cut_at(budget_s, tmp_path):
    """That case, as two candidates and eager, its budget cut: the document, and who had which finals, in order."""
    strategy = tmp_path / "two.toml"
    strategy.write_text(
        "[search]\nsampler = 'policy'\n[dimensions]\nruntime = []\nfreezing = []\n"
        "[stages]\nfinals = 0.02\npacking = 0.0\n"
    )
    ran = []

    def answer(plan):
        found = seen_before(plan, ran)
        ran.append(plan.key)
        return found

    document, runner = run(answer, budget_s=budget_s, strategy=str(strategy), calls=10**6)
    labels = {entry.plan.key: entry.label for entry in document.trials}
    return document, [labels[plan.key] for plan in runner.ran[len(document.trials) :]]


def test_who_reads_better_in_every_column_has_its_final_first(tmp_path):
    document, finals = cut_at(5000.0, tmp_path)
    assert finals[:3] == ["inductor freezing=True", "inductor", "eager"]
    assert sorted(finals[:6]) == sorted(finals[:3] * 2), "the first of all before the second of any"
    assert document.winner.label == "inductor"


def test_wherever_the_budget_ends_the_better_one_wins_or_the_verdict_is_open(tmp_path):
    verdicts = set()
    for budget_s in range(61, 121, 5):
        document, finals = cut_at(float(budget_s), tmp_path)
        is_open = "the verdict is open: inductor reads as good or better in every column" in document.reason
        verdicts.add((document.winner.label, is_open))
        assert is_open == bool(document.open_to)
        assert not is_open or finals == ["inductor freezing=True"]
        assert is_open == ("The verdict is open: no final for inductor." in " ".join(as_text(document).split()))
        assert is_open or not list(betters(document))
    assert {("inductor freezing=True", True), ("inductor", False)} <= verdicts


def test_on_many_equals_finals_do_not_go_on_without_end():
    """Whoever is owed a final has one; it takes part in the rounds only if it is ahead then."""
    document, runner = run(lambda plan: (0.5, 8.0) if not plan.is_eager else (1.0, 0.0), budget_s=50_000)
    finals = len(runner.ran) - len(document.trials)
    rules = load_strategy("balanced").finals
    assert finals <= (rules.candidates + 2) * rules.processes


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(studies())
def test_one_report_says_one_thing(study):
    document, runner = study
    check_table(document)
    check_reason(document)
    check_envelope(document)
    check_trade_offs(document)
    check_artifact(document, runner)
