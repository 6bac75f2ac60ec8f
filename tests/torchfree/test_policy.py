"""The policy: it probes in eager, drops hopeless values, then chooses the largest expected gain per second."""

import dataclasses
import math

import pytest
from builders import environment, failure, measurement, profile, trial
from fakes import FakeClock, FakeRunner, packs_a_program
from msgspec.structs import replace
from test_search import run, said

from autocompile.core.goal import Goal
from autocompile.core.step_profile import StepPhase, StepProfile
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.catalogue import open_space
from autocompile.runtime.openvino import kind as openvino_kind
from autocompile.search.choose.evidence import Evidence
from autocompile.search.choose.forecast import Forecast
from autocompile.search.choose.policy import Stakes, choose, does_as_eager, dropped, probes
from autocompile.search.strategy import load_strategy
from autocompile.space.surroundings import Surroundings

AROUND = Surroundings(device_type="cpu", cores=4, is_module=True, has_conv=False, signature_count=1)
SEEN = Evidence(profile(), replace(environment(), cpu_features=("amx_bf16",)), "cpu")
SPACE, _ = open_space(AROUND, load_strategy("balanced").dimensions)


def seen(ratio, *, seconds=10.0, number=0, **values):
    candidate = SPACE.candidate(**values)
    outcome = replace(measurement(ratio), phases_s={"compile": seconds})
    return replace(
        trial(number, outcome=outcome), candidate=candidate, plan=SPACE.plan(candidate), label=SPACE.label(candidate)
    )


@pytest.fixture
def policy(tmp_path):
    text = load_strategy("balanced")
    path = tmp_path / "policy.toml"
    path.write_text(
        "[search]\nsampler = 'policy'\nmax_trials = 40\n[dimensions]\n"
        + "\n".join(f"{name} = []" for name in text.dimensions)
    )
    return str(path)


def test_what_is_compiled_is_told_about_by_its_values_in_eager():
    compiled = SPACE.candidate(runtime="inductor", amp="bf16", threads=1, freezing=True)
    assert [SPACE.label(one) for one in probes(SPACE, compiled)] == ["eager amp=bf16", "eager threads=1"]
    assert not probes(SPACE, SPACE.candidate(amp="bf16", threads=1))


def test_circumstances_change_what_is_expected_and_are_told():
    plain, cpu = replace(environment(), cpu_features=()), profile(bound="overhead")
    fast = Forecast(SPACE, Evidence(cpu, replace(plain, cpu_features=("amx_bf16",)), "cpu"), ())
    slow = Forecast(SPACE, Evidence(cpu, plain, "cpu"), ())
    half, single = SPACE.candidate(amp="bf16"), SPACE.candidate(threads=1)
    assert fast.ratio(half).mean < slow.ratio(half).mean
    assert slow.reasons(half) == ["this CPU has no instructions for bf16"]
    some = Forecast(SPACE, Evidence(cpu, replace(plain, cpu_features=("avx512_bf16",)), "cpu"), ())
    assert some.reasons(half) == ["this CPU has instructions for bf16"]
    assert some.ratio(half).mean < 1 < slow.ratio(half).mean or some.ratio(half).mean < 0 < slow.ratio(half).mean
    assert not fast.reasons(half)
    assert slow.reasons(single) == ["starting operators limits its speed, and more threads do not help"]
    assert Forecast(SPACE, SEEN, ()).reasons(single) == ["on a CPU"]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.5, ["the optimizer takes 50% of a step, and a fused update saves most of that"]),
        (0.1, []),
        (0.02, ["the optimizer takes 2% of a step, so its implementation makes little difference"]),
    ],
)
def test_what_the_optimizer_takes_of_a_step_tells_what_fused_may_gain(share, said):
    """Of the step alone: what is spent waiting for batches is no implementation's to save."""
    phases = (StepPhase("input", 0.5, 5.0), StepPhase("optimizer", share / 2, 5.0 * share))
    space, _ = open_space(
        dataclasses.replace(AROUND, training=TrainingEntry("AdamW")), load_strategy("balanced").dimensions
    )
    evidence = Evidence(profile(step=StepProfile(phases)), environment(), "cpu")
    forecast, fused = Forecast(space, evidence, ()), space.candidate(optimizer="fused")
    assert forecast.reasons(fused) == said
    unknown = Forecast(space, Evidence(profile(), environment(), "cpu"), ()).ratio(fused).mean
    assert (forecast.ratio(fused).mean < unknown) == (share > 0.15)


def test_compiling_a_step_of_training_is_expected_to_gain_less_on_a_cpu():
    plain = SPACE.plain_compile()
    called = Forecast(SPACE, Evidence(profile(), environment(), "cpu"), ())
    within = profile(step=StepProfile((StepPhase("forward", 1.0, 5.0),)))
    trained = Forecast(SPACE, Evidence(within, environment(), "cpu"), ())
    assert called.ratio(plain).mean < trained.ratio(plain).mean
    assert called.seconds(plain) < trained.seconds(plain)
    on_gpu = [Forecast(SPACE, Evidence(seen, environment(), "cuda"), ()) for seen in (profile(), within)]
    assert on_gpu[0].ratio(plain) == on_gpu[1].ratio(plain)


def test_what_eager_shows_is_expected_of_what_is_compiled():
    base = [seen(1.0, runtime="eager"), seen(0.5, number=1, runtime="inductor")]
    fast = Forecast(SPACE, SEEN, [*base, seen(0.5, number=2, runtime="eager", amp="bf16")])
    slow = Forecast(SPACE, SEEN, [*base, seen(3.0, number=2, runtime="eager", amp="bf16")])
    both = SPACE.candidate(runtime="inductor", amp="bf16")
    assert math.exp(fast.ratio(both).mean) == pytest.approx(0.25, rel=0.15)
    assert math.exp(slow.ratio(both).mean) == pytest.approx(1.5, rel=0.15)


def test_little_is_learned_from_what_was_timed_beside_other_programs():
    calm = seen(3.0, number=1, runtime="eager", amp="bf16")
    contamination = replace(calm.outcome.contamination, noisy=True)
    disturbed = replace(calm, outcome=replace(calm.outcome, contamination=contamination))
    both, first = SPACE.candidate(runtime="inductor", amp="bf16"), [seen(1.0, runtime="eager")]
    before = Forecast(SPACE, SEEN, first).ratio(both)
    after_calm, after_noise = (Forecast(SPACE, SEEN, [*first, one]).ratio(both) for one in (calm, disturbed))
    assert after_calm.mean - before.mean > 2 * (after_noise.mean - before.mean) > 0
    assert after_noise.deviation > after_calm.deviation


def test_seconds_are_learned_by_mode():
    base = [seen(1.0, seconds=3.5, runtime="eager"), seen(0.5, seconds=20, number=1, runtime="inductor")]
    tuned = seen(0.5, seconds=90, number=2, runtime="inductor", mode="max-autotune")
    forecast = Forecast(SPACE, SEEN, [*base, tuned])
    frozen = SPACE.candidate(runtime="inductor", mode="max-autotune", freezing=True)
    assert forecast.seconds(frozen) > 2 * forecast.seconds(SPACE.candidate(runtime="inductor", freezing=True))


def test_the_most_gain_for_a_second_comes_first():
    trials = [seen(1.0, runtime="eager"), seen(0.5, seconds=20, number=1, runtime="inductor")]
    slow = SPACE.candidate(runtime="inductor", mode="max-autotune", freezing=True)
    quick = SPACE.candidate(runtime="inductor", freezing=True)
    choice = choose(Forecast(SPACE, SEEN, trials), SPACE, [slow, quick], Stakes(math.log(0.5), 1e4))
    assert choice.candidate == quick
    assert "the highest expected improvement per second, among 2 untried" in choice.reason


def test_where_many_processes_load_what_was_compiled_each_pays_a_share():
    trials = [seen(1.0, runtime="eager"), seen(0.5, seconds=20, number=1, runtime="inductor")]
    frozen, eager = SPACE.candidate(runtime="inductor", freezing=True), SPACE.candidate(threads=2)
    forecast = Forecast(SPACE, SEEN, trials)
    few_calls = 5.0
    assert choose(forecast, SPACE, [frozen, eager], Stakes(math.log(0.9), few_calls)).candidate == eager
    assert choose(forecast, SPACE, [frozen, eager], Stakes(math.log(0.9), few_calls, processes=500)).candidate == frozen


def test_values_that_fail_when_compiled_are_not_tried_over_and_over():
    trials = [seen(1.0, runtime="eager"), seen(0.5, seconds=20, number=1, runtime="inductor")]
    frozen = SPACE.candidate(runtime="inductor", mode="max-autotune-no-cudagraphs", freezing=True)
    crash = replace(
        seen(1.0, seconds=4.0, number=2, runtime="inductor", freezing=True), outcome=failure("error", "compile", "no")
    )
    before, after = (Forecast(SPACE, SEEN, known) for known in (trials, [*trials, crash]))
    assert after.ratio(frozen).mean > before.ratio(frozen).mean + 0.2
    assert after.seconds(frozen) == pytest.approx(before.seconds(frozen))


def failed(message, number, **values):
    outcome = failure("error", "compile", message)
    return replace(seen(1.0, seconds=4.0, number=number, **values), outcome=outcome)


def test_a_failure_tells_nothing_of_values_that_others_with_the_same_failure_do_not_have():
    """The model's error in bf16 says nothing about freezing, with which one of the two was tried."""
    tried = [seen(1.0, runtime="eager"), failed("index_add", 1, runtime="eager", amp="bf16")]
    frozen = SPACE.candidate(runtime="inductor", freezing=True)
    before, same, another = (
        Forecast(SPACE, SEEN, [*tried, *more]).ratio(frozen).mean
        for more in (
            [],
            [failed("index_add", 2, runtime="inductor", amp="bf16", freezing=True)],
            [failed("no room", 2, runtime="inductor", amp="bf16", freezing=True)],
        )
    )
    assert before < same < another
    refuted = seen(0.5, number=3, runtime="inductor", amp="bf16")
    known = [*tried, refuted, failed("index_add", 2, runtime="inductor", amp="bf16", freezing=True)]
    assert Forecast(SPACE, SEEN, known).ratio(frozen).mean > Forecast(SPACE, SEEN, known[:-1]).ratio(frozen).mean + 0.1
    half = SPACE.candidate(runtime="inductor", amp="bf16")
    apart = [failed(message, 1, runtime="inductor", amp="bf16") for message in ("index_add", "no room")]
    first, second = (Forecast(SPACE, SEEN, [*tried, one]).ratio(half).mean for one in apart)
    assert first == pytest.approx(second), "what all of them have remains suspect"


def test_a_failure_with_a_known_cause_tells_nothing_of_other_candidates():
    """What must fail in the same way is closed: where blocks cannot be compiled, the whole model in bf16 may be."""
    tried = [seen(1.0, runtime="eager"), seen(0.7, number=1, runtime="inductor")]
    skipped = failed("nothing was compiled", 2, runtime="inductor", amp="bf16", scope="blocks")
    known = replace(skipped, outcome=replace(skipped.outcome, cause="capture"))
    half = SPACE.candidate(runtime="inductor", amp="bf16")
    before, unknown, told = (
        Forecast(SPACE, SEEN, [*tried, *more]).ratio(half).mean for more in ([], [skipped], [known])
    )
    assert told == before < unknown


def test_crashes_are_not_taken_for_one_and_the_same():
    """Killed by the system: the message does not tell for which reason."""
    tried = [seen(1.0, runtime="eager"), seen(0.5, number=1, runtime="inductor")]
    for number, values in enumerate(({"freezing": True}, {"mode": "max-autotune"}), 2):
        killed = failure("crash", "compile", "killed by the system")
        tried.append(replace(failed("", number, runtime="inductor", **values), outcome=killed))
    plain, frozen = SPACE.candidate(runtime="inductor"), SPACE.candidate(runtime="inductor", freezing=True)
    forecast = Forecast(SPACE, SEEN, tried)
    assert forecast.ratio(plain).mean < -0.2
    assert forecast.ratio(frozen).mean > forecast.ratio(plain).mean + 0.3


def test_a_batch_size_that_is_slower_in_eager_is_not_dropped():
    around = dataclasses.replace(AROUND, batches=(1, 32))
    space, _ = open_space(around, {"runtime": (), "batch": ()})
    slow = replace(
        seen(3.0, number=2, runtime="eager"),
        candidate=space.candidate(batch=32),
        plan=space.plan(space.candidate(batch=32)),
    )
    untried = [candidate for candidate, _plan in space.programs]
    assert not dropped(Forecast(space, SEEN, [slow]), space, [slow], untried)


def test_hopeless_values_are_dropped_with_what_that_saves():
    slow = seen(3.1, number=2, runtime="eager", amp="bf16")
    wrong = replace(
        seen(1.0, number=3, runtime="eager", amp="fp16"), outcome=failure("wrong_result", "verify", "off by 0.1")
    )
    untried = [candidate for candidate, _plan in SPACE.programs]
    trials = [seen(1.0, runtime="eager"), slow, wrong]
    found = dropped(Forecast(SPACE, SEEN, trials), SPACE, trials, untried)
    assert [(one.dimension, one.value) for one in found] == [("amp", "bf16"), ("amp", "fp16")]
    assert found[0].reason == "3.1 times slower in eager"
    assert found[0].saved_s > 100


def test_a_value_that_fails_in_eager_is_still_tried_where_the_runtime_implements_it_itself(monkeypatch):
    monkeypatch.setattr(openvino_kind, "computes_in", lambda _dtype: True)
    space, _ = open_space(AROUND, load_strategy("balanced").dimensions)
    candidate = space.candidate(runtime="eager", amp="bf16")
    wrong = replace(
        seen(1.0, number=3, runtime="eager"),
        candidate=candidate,
        plan=space.plan(candidate),
        outcome=failure("wrong_result", "verify", "off by 0.013"),
    )
    trials, untried = [seen(1.0, runtime="eager"), wrong], [candidate for candidate, _plan in space.programs]
    (found,) = dropped(Forecast(space, SEEN, trials), space, trials, untried)
    assert (found.dimension, found.value, found.still) == ("amp", "bf16", ("openvino",))
    assert not does_as_eager(space.candidate(runtime="openvino", amp="bf16"), "amp")
    assert does_as_eager(space.candidate(runtime="openvino", threads=1), "threads")
    assert does_as_eager(space.candidate(runtime="aot", amp="bf16"), "amp")


def test_a_run_by_policy_finds_the_best_and_says_why(policy):
    def answer(plan):
        ratio = 3.0 if plan.autocast else 1.0
        ratio *= 1.4 if plan.threads else 1.0
        return ratio * (0.5 if not plan.is_eager else 1.0) * (
            0.8 if plan.settings.get("options", {}).get("freezing") else 1.0
        ), 8.0 * (not plan.is_eager)

    document, runner = run(answer, strategy=policy, budget_s=2000)
    assert document.winner.config["freezing"]
    narrowed = said(document, "narrowed")
    assert any(
        line.startswith("amp=bf16: 3.0 times slower in eager: not compiled; that saves about") for line in narrowed
    )
    assert next(one for one in document.decisions if one.subject == "amp=bf16").saved_s > 0
    assert not any(plan.autocast and not plan.is_eager for plan in runner.ran)
    assert any("the highest expected improvement per second" in line for line in said(document, "chosen"))


def test_a_run_tries_openvino_in_the_precision_that_is_hopeless_in_eager(policy, monkeypatch):
    monkeypatch.setattr(openvino_kind, "computes_in", lambda dtype: dtype != "float16")

    def answer(plan):
        slow = plan.autocast and plan.runtime != "openvino"
        return (3.0 if slow else 0.4 if plan.autocast else 1.0 if plan.is_eager else 0.6), 8.0 * (not plan.is_eager)

    runner = FakeRunner(answer, FakeClock(), packs=packs_a_program)
    document, _ = run(runner=runner, goal=Goal(calls=10**7), strategy=policy, budget_s=2000)
    told = "amp=bf16: 3.0 times slower in eager: not compiled except by openvino; that saves about"
    assert any(line.startswith(told) for line in said(document, "narrowed"))
    compiled = {e.plan.runtime for e in document.trials if e.plan.autocast and not e.plan.is_eager}
    assert compiled == {"openvino"}
    assert document.winner.label.startswith("openvino amp=bf16")


@pytest.mark.parametrize(("busy", "starves"), [(0.6, True), (0.66, True), (0.67, False), (0.9, False)])
def test_a_gpu_that_is_idle_for_more_than_a_third_of_the_time_starves(busy, starves):
    assert Evidence(profile(busy_share=busy), environment(), "cuda").gpu_starves == starves
    assert not Evidence(profile(busy_share=busy), environment(), "cpu").gpu_starves


@pytest.mark.parametrize(("outside", "starves"), [(0.6, True), (0.1, False)])
def test_where_nothing_tells_how_busy_a_gpu_is_its_kernels_do(outside, starves):
    unknown = profile(busy_share=None, outside_kernels_share=outside)
    assert Evidence(unknown, environment(), "cuda").gpu_starves == starves
    assert unknown.busy == pytest.approx(1 - outside)
    overstated = profile(busy_share=0.99, outside_kernels_share=outside)
    assert overstated.busy == pytest.approx(1 - outside), "any kernel at all makes NVML's span a busy one"
    assert profile(busy_share=0.3, outside_kernels_share=outside).busy == pytest.approx(min(0.3, 1 - outside))
    blind = profile(busy_share=None, outside_kernels_share=1.0, kernels_per_call=0)
    assert blind.busy is None
    assert not Evidence(blind, environment(), "cuda").gpu_starves


@pytest.mark.parametrize(("bound", "seeded"), [("compute", True), ("memory", False)])
def test_products_in_tf32_are_expected_to_pay_where_products_bound_a_gpu(bound, seeded):
    space = open_space(dataclasses.replace(AROUND, device_type="cuda"), load_strategy("balanced").dimensions)[0]
    forecast = Forecast(space, Evidence(profile(bound=bound), environment(), "cuda"), ())
    fast, plain = space.candidate(runtime="inductor", float32="tf32"), space.plain_compile()
    assert forecast.ratio(fast).mean < forecast.ratio(plain).mean
    assert (math.exp(forecast.ratio(fast).mean) < 0.55) == seeded


@pytest.mark.parametrize(("share", "pays"), [(0.3, True), (0.02, False)])
def test_attention_as_products_is_expected_to_pay_in_bf16_where_a_training_step_spends_its_time_in_it(share, pays):
    around = dataclasses.replace(AROUND, fuses_attention=True, training=TrainingEntry("AdamW"))
    space = open_space(around, load_strategy("balanced").dimensions)[0]
    step = StepProfile((StepPhase("forward", 0.4, 4.0), StepPhase("backward", 0.6, 6.0)))
    forecasts = [
        Forecast(space, Evidence(profile(attention_share=share, step=one), SEEN.environment, "cpu"), ())
        for one in (step, None)
    ]
    given, products = space.candidate(amp="bf16"), space.candidate(amp="bf16", attention="math")
    training, inference = (each.ratio(products).mean < each.ratio(given).mean - 0.1 for each in forecasts)
    assert (training, inference) == (pays, False)
    assert any("attention takes 30% of a step" in reason for reason in forecasts[0].reasons(products)) == pays
