"""A bench for single trials."""

from servings import AHEAD

from autocompile.artifact.integrity import write_manifest
from autocompile.core.job import Acceptance, Limits, PackTask, ProfileTask, Timing, TrialTask
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.outcome import Failure
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.search.pack.packing import identity_of_packed, with_files
from autocompile.workload.spool import spool

TIMING = Timing(precision=0.2, limit_s=0.5)


def reply_to(runner, task, limits, *, cache):
    """What comes of a task that runs alone."""
    return runner.submit(task, limits, cache=cache, exclusive=True).answer()


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
        return reply_to(
            self.runner, ProfileTask(self.workload, self.reference, TIMING, 0), Limits(60.0), cache="profile"
        )

    def trial(self, plan, limits=None, cache="trial", artifact=""):
        return self.submit(plan, limits, cache, artifact).answer()

    def submit(self, plan, limits=None, cache="trial", artifact=""):
        task = TrialTask(
            self.workload, plan, self.reference, TIMING, Acceptance(published_tolerance(plan.autocast)), 0, artifact
        )
        return self.runner.submit(task, limits or Limits(120.0), cache=cache, exclusive=True)

    def pack(self, plan, serving=AHEAD, cache="pack"):
        """The workload's artifact, or the failure; as `search.pack.packing` puts one together."""
        directory = self.directory / f"artifact{self.count}"
        task = PackTask(
            self.workload, plan, serving, self.reference, Acceptance(published_tolerance(plan.autocast)),
            str(directory / serving.name),
        )  # fmt: skip
        reply = reply_to(self.runner, task, Limits(200.0), cache=f"{cache}-{serving.name}-{directory.parent.name}")
        if isinstance(reply, Failure):
            return reply
        manifest = Manifest(
            manifest_version=MANIFEST_VERSION,
            label="as packed",
            plan=plan,
            device_type=self.workload.device_type,
            identity=identity_of_packed(self.workload.identity, reply),
            serving=serving,
            absences=(),
            requirements=reply.requirements,
            programs=reply.programs,
            weights=reply.weights,
        )
        write_manifest(directory, with_files(directory, manifest))
        return directory
