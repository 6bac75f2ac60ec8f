"""A bench for single trials."""

from autocompile.core.job import Acceptance, Limits, ProfileTask, Timing, TrialTask
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.workload.spool import spool

TIMING = Timing(precision=0.2, limit_s=0.5)


class Laboratory:
    """Spools a model, profiles it, and runs trials of it."""

    def __init__(self, runner, directory):
        self.runner = runner
        self.directory = directory
        self.count = 0

    def prepare(self, model, inputs, *, preload=False):
        self.count += 1
        here = self.directory / str(self.count)
        self.workload = spool(model, inputs, here)
        self.reference = str(here / "reference.pt")
        if preload:
            self.runner.preload(self.workload)
        reply = self.profile()
        assert isinstance(reply, Profile), reply
        return reply

    def profile(self):
        return self.runner.run(ProfileTask(self.workload, self.reference, TIMING, 0), Limits(60.0), cache="profile")

    def trial(self, plan, limits=None, cache="trial"):
        task = TrialTask(self.workload, plan, self.reference, TIMING, Acceptance(published_tolerance(plan.autocast)), 0)
        return self.runner.run(task, limits or Limits(120.0), cache=cache)
