"""How plans can be packed, and by which runtimes."""

from msgspec.structs import replace
from servings import AHEAD, AS_IT_IS, CARRIED

from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime import catalogue
from autocompile.runtime.catalogue import kinds, on_live_weights, serving_of
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.kind import Kind


class Other(Kind):
    """Holds its weights, as its programs do."""

    name = "other"
    meaning = "a program"
    packs_as = "load"

    def holds_weights(self, plan):
        return True


def test_each_plan_is_served_by_its_own_runtime():
    assert serving_of(compiled()) == CARRIED
    assert serving_of(Plan(runtime=AHEAD.runtime)) == AHEAD
    assert serving_of(Plan()) == AS_IT_IS


def test_changed_weights_are_served_by_a_program_in_the_same_precision_that_follows_them(monkeypatch):
    here = (*kinds(), Other())
    monkeypatch.setattr(catalogue, "kinds", lambda: here)
    monkeypatch.setattr(catalogue, "_of_others", lambda: {"other": here[-1]})
    plan = Plan(runtime="other", settings={"effort": 3}, autocast="bfloat16", threads=2, batch=4)
    assert serving_of(plan) == Serving("other", "load")
    own = on_live_weights(plan)
    assert own == replace(plan, runtime="aot", settings={})
    assert not catalogue.kind_of(own).holds_weights(own)
    frozen = Plan(runtime="aot", settings={"options": {"freezing": True, "max_autotune": True}})
    assert catalogue.kind_of(frozen).holds_weights(frozen)
    assert on_live_weights(frozen) == Plan(runtime="aot")
