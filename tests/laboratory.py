"""A bench that runs single trials."""

from msgspec.structs import replace
from servings import AHEAD

from autocompile.artifact.integrity import write_manifest
from autocompile.core.job import Acceptance, Limits, PackTask, ProfileTask, Timing, TrialTask
from autocompile.core.outcome import Failure
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.search.packages import manifest_of
from autocompile.workload.generating.spooling import spool_generation
from autocompile.workload.spool import spool

TIMING = Timing(precision=0.2, limit_s=0.5)
# This limit only ends tasks that hang. It does not limit how long a task may take on a busy machine.
_HANGS = Limits(120.0)
# A strategy that ends after a few trials, even on a busy machine.
EAGER = """
[search]
max_trials = 3
[dimensions]
runtime = ['eager']
[screening]
precision = 0.1
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""


def reply_to(runner, task, limits, *, cache):
    """Return the reply to a task that runs alone."""
    return runner.submit(task, limits, cache=cache, exclusive=True).answer()


class Laboratory:
    """Spools a model, profiles it, and runs trials of it."""

    def __init__(self, runner, directory):
        self.runner = runner
        self.directory = directory
        self.count = 0

    def prepare(self, model, inputs, *, preload=False, training=None, generation=None):
        self.spool(model, inputs, training=training, generation=generation)
        if preload:
            self.runner.preload(self.workload)
        reply = self.profile()
        assert isinstance(reply, Profile), reply
        return reply

    def spool(self, model, inputs, *, training=None, generation=None):
        self.count += 1
        here = self.directory / str(self.count)
        self.workload = (
            spool_generation(generation, here) if generation else spool(model, inputs, here, training=training)
        )
        self.reference = str(here / "reference.pt")

    def profile(self):
        return reply_to(self.runner, ProfileTask(self.workload, self.reference, TIMING, 0), _HANGS, cache="profile")

    def trial(self, plan, limits=None, cache="trial", artifact=""):
        return self.submit(plan, limits, cache, artifact).answer()

    def task(self, plan, artifact=""):
        acceptance = Acceptance(published_tolerance(plan.precision))
        return TrialTask(self.workload, plan, self.reference, TIMING, acceptance, 0, artifact)

    def submit(self, plan, limits=None, cache="trial", artifact=""):
        return self.runner.submit(self.task(plan, artifact), limits or _HANGS, cache=cache, exclusive=True)

    def pack(self, plan, serving=AHEAD, cache="pack"):
        """The workload's artifact, or the failure; as `search.packages` puts one together."""
        directory = self.directory / f"artifact{self.count}"
        own = as_program(plan) if serving == AHEAD else plan
        task = PackTask(
            self.workload, own, serving, self.reference, Acceptance(published_tolerance(plan.precision)),
            str(directory / serving.name),
        )  # fmt: skip
        reply = reply_to(self.runner, task, Limits(200.0), cache=self.packs_in(serving, cache))
        if isinstance(reply, Failure):
            return reply
        write_manifest(directory, manifest_of(self.workload, own, serving, reply, directory, "as packed"))
        return directory

    def packs_in(self, serving, cache="pack"):
        """The name of the compiler's cache in which `pack` compiles."""
        return f"{cache}-{serving.name}-{self.directory.name}"


def as_program(plan):
    """A plan for `torch.compile`, or one that says nothing of its runtime, as one that is compiled ahead."""
    if plan.runtime not in ("eager", "inductor"):
        return plan
    options = plan.settings.get("options", {})
    return replace(plan, runtime=AHEAD.runtime, settings={"options": options} if options else {})
