"""How plans can be packed, and by which runtimes."""

from msgspec.structs import replace
from servings import AHEAD, CARRIED

from autocompile.core.buckets import Buckets
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime import catalogue
from autocompile.runtime.aot.settings import Settings, settings_of
from autocompile.runtime.catalogue import kinds, packed_plan, servings_of
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.kind import Kind

BUCKETS = Buckets(sizes=(8, 16), padded=(), cut=(), positional=1, keywords=(), kinds=(), outputs=1)


class Other(Kind):
    """Packs what eager runs, too."""

    name = "other"
    meaning = "a program"
    packs_as = "load"

    def packs(self, plan):
        return replace(plan, runtime=self.name) if plan.is_eager else None


def test_each_plan_is_packed_by_whom_it_can_be_the_best_first():
    assert servings_of(compiled()) == (AHEAD, CARRIED)
    assert servings_of(Plan(runtime=AHEAD.runtime)) == (AHEAD,)
    assert servings_of(Plan()) == ()


def test_what_packs_plans_of_others_has_one_of_its_own():
    plan = replace(compiled(options={"max_autotune": True}), autocast="bfloat16", threads=2, batch=4)
    own = packed_plan(plan, AHEAD)
    assert (own.runtime, own.autocast, own.threads, own.batch) == ("aot", "bfloat16", 2, 4)
    assert settings_of(own) == Settings(options={"max_autotune": True})
    assert packed_plan(plan, CARRIED) is plan


def test_what_a_program_cannot_do_is_kept_apart_from_its_options():
    options = {"freezing": True, "triton.cudagraphs": True, "max_autotune": True}
    own = settings_of(packed_plan(compiled(options=options, buckets=BUCKETS), AHEAD))
    assert own == Settings(options={"max_autotune": True}, frozen=True, padded=True)
    assert settings_of(packed_plan(compiled(scope=("layers.0",), dynamic=True), AHEAD)) == Settings()


def test_a_runtime_that_comes_from_elsewhere_packs_plans_of_those_that_are_there(monkeypatch):
    here = (*kinds(), Other())
    monkeypatch.setattr(catalogue, "kinds", lambda: here)
    monkeypatch.setattr(catalogue, "_of_others", lambda: {"other": here[-1]})
    own = Serving("other", "load")
    assert servings_of(Plan(threads=1)) == (own,)
    assert packed_plan(Plan(threads=1), own) == Plan(runtime="other", threads=1)
    assert servings_of(Plan(runtime="other")) == (own,)
    assert servings_of(compiled()) == (AHEAD, CARRIED)
