"""The winner's artifact: how it serves, why not better, and what is kept of it."""

import json
import os
from pathlib import Path

import pytest
from builders import failure, measurement
from fakes import FakeClock, FakeRunner, packs_a_program
from msgspec.structs import replace
from servings import AHEAD, AS_IT_IS, CARRIED, COMPILING
from test_search import run, said, usual

from autocompile.artifact.directory import write_recommendation
from autocompile.artifact.integrity import manifest_digest, open_manifest, write_manifest
from autocompile.artifact.store import deliver
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue
from autocompile.core.goal import Goal
from autocompile.core.manifest import FileEntry
from autocompile.core.outcome import Startup
from autocompile.report.story import story
from autocompile.report.text import as_text


def packing(packs=packs_a_program, artifact=None, **figures):
    loaded = measurement(0.3, **figures)
    loaded = replace(loaded, startup=Startup(0.0, 0.02, 0.01, 0.0))
    return FakeRunner(usual, FakeClock(), packs=packs, artifact=artifact or loaded)


def test_the_best_that_holds_is_packed_and_measured_as_loaded():
    document, runner = run(runner=packing())
    assert runner.packed == [AHEAD]
    entry = document.artifact
    assert (entry.serving, entry.processes, entry.absences) == (AHEAD, 3, ())
    assert entry.startup_s == pytest.approx(0.03)
    assert entry.speedup.value == pytest.approx(1 / 0.3, rel=0.01)
    assert entry.size_bytes == len(b"machine code")
    assert entry.envelope[-1].label.endswith(", packed")
    assert document.winner.startup_s == pytest.approx(8.0), "the trial's own figures stay in the table"
    text = " ".join(as_text(document).split())
    assert "Packed: 3.33x, 30 ms to start (aot)." in text
    assert entry.digest in text
    manifest = open_manifest(runner.directory, entry.digest)
    assert [one.serving for one in manifest.served] == [AHEAD, COMPILING, AS_IT_IS]


def test_what_does_not_export_goes_on_to_the_next_best_and_says_why():
    document, runner = run()
    assert runner.packed == [AHEAD, CARRIED]
    assert document.artifact.start == "compile"
    assert [(a.serving, a.reason) for a in document.artifact.absences] == [
        (AHEAD, "it does not export"),
        (CARRIED, "it does not export"),
    ]
    assert "not packed as aot: it does not export" in as_text(document)


def test_an_artifact_that_is_wrong_when_loaded_is_not_kept():
    document, _ = run(runner=packing(artifact=failure("wrong_result", "verify", "output is off")))
    assert document.artifact.start == "compile"
    assert document.artifact.absences[0].reason == "it did not hold when it was loaded: output is off"


def test_eager_needs_no_packing():
    document, runner = run(lambda plan: (1.0 if plan.is_eager else 1.2, 8.0 if not plan.is_eager else 0.0))
    assert runner.packed == []
    assert document.artifact.runtime == "eager"
    assert document.artifact.absences == ()


def test_packing_has_its_share_of_the_budget_and_no_more():
    runner = packing()
    runner.pack_s = {"load": 1e6, "cache": 1e6}
    document, _ = run(runner=runner)
    reasons = [absence.reason for absence in document.artifact.absences]
    assert len(reasons) == 2
    assert all(reason.startswith("packing it took more than the ") for reason in reasons)
    assert "skipped" in {decision.action for decision in document.decisions}
    assert runner.clock.now <= 600.0


def test_ctrl_c_while_packing_keeps_the_verdict():
    def stopped(_task):
        raise KeyboardInterrupt

    document, _ = run(runner=packing(stopped))
    assert not document.complete
    assert document.artifact.start == "compile"
    assert any("packing: stopped by hand" in line for line in said(document, "stopped"))


class Interrupted(FakeRunner):
    """The user interrupts the run while the artifact is timed, after so many processes."""

    loads = 0
    after = 0

    def measure(self, task, limits):
        if not task.artifact:
            return super().measure(task, limits)
        if self.loads >= self.after:
            raise KeyboardInterrupt
        self.loads += 1
        return super().measure(task, limits)


def test_ctrl_c_while_the_artifact_is_timed_keeps_it_as_not_timed():
    document, runner = run(runner=Interrupted(usual, FakeClock(), packs=packs_a_program))
    assert runner.packed == [AHEAD]
    assert (document.artifact.serving, document.artifact.untimed) == (AHEAD, "stopped by hand")
    assert document.artifact.excess == {}
    assert open_manifest(runner.directory, document.artifact.digest).serving.runtime == "aot"
    assert not document.complete
    text = " ".join(as_text(document).split())
    assert "Packed, verified, not timed as loaded: stopped by hand (aot)." in text
    assert "Stopped: interrupted by the user; this is the best so far." in text


def test_ctrl_c_after_one_process_keeps_what_that_one_measured():
    runner = Interrupted(usual, FakeClock(), packs=packs_a_program, artifact=measurement(0.3, startup_s=0.05))
    runner.after = 1
    document, _ = run(runner=runner)
    assert (document.artifact.serving, document.artifact.processes, document.artifact.untimed) == (AHEAD, 1, "")
    assert document.artifact.speedup.value == pytest.approx(1 / 0.3, rel=0.01)
    assert not document.complete


def test_what_misses_a_limit_as_packed_says_so_and_is_not_preferred():
    runner = packing(artifact=measurement(1.0, startup_s=0.05))
    document, _ = run(runner=runner, goal=Goal(max_latency="8ms"), budget_s=3000)
    assert document.artifact.runtime == "aot"
    assert document.artifact.excess["max_latency"] == pytest.approx(0.25)
    assert "As packed it misses max_latency by 25.0%." in " ".join(as_text(document).split())
    assert "As packed it misses max_latency by 25.0%." in "\n".join(story(document))
    assert not any(segment.label.endswith(", packed") for segment in document.artifact.envelope)


def test_what_keeps_the_limits_as_packed_claims_nothing_else():
    document, _ = run(runner=packing(), goal=Goal(max_latency="8ms", max_memory="4MiB"), budget_s=3000)
    assert document.artifact.excess["max_latency"] == pytest.approx(3 / 8 - 1)
    assert document.artifact.excess["max_memory"] == pytest.approx(1 / 4 - 1)
    assert "As packed it misses" not in as_text(document)
    assert document.artifact.envelope[-1].label.endswith(", packed")


def test_what_was_loaded_beside_others_is_not_preferred():
    quiet = measurement(0.3, startup_s=0.05)
    noisy = replace(quiet, contamination=replace(quiet.contamination, noisy=True))
    document, _ = run(runner=packing(artifact=noisy))
    assert document.artifact.runtime == "aot"
    assert not any(segment.label.endswith(", packed") for segment in document.artifact.envelope)


def nearly_alike(plan):
    """Freezing gains so little that a slow start hides it."""
    return (
        ((0.45 if plan.settings.get("options", {}).get("freezing") else 0.5), 8.0) if not plan.is_eager else (1.0, 0.0)
    )


def test_an_artifact_is_kept_where_the_one_to_take_its_place_cannot_be_packed_as_well():
    """Loaded in 4 s, both are tied and the simpler one wins; but that one does not export."""

    def packs(task):
        frozen = task.plan.settings.get("options", {}).get("freezing")
        return packs_a_program(task) if frozen else failure("unsupported", "pack", "it does not export")

    runner = FakeRunner(nearly_alike, FakeClock(), packs=packs, artifact=measurement(0.45, startup_s=4.0))
    document, _ = run(runner=runner, goal=Goal(calls=1000, deploy="artifact"), budget_s=3000)
    assert runner.packed == [AHEAD, AHEAD, CARRIED]
    assert document.winner.label == document.artifact.label == "inductor freezing=True"
    assert document.artifact.runtime == "aot"
    manifest = open_manifest(runner.directory, document.artifact.digest)
    assert (manifest.label, manifest.serving) == (document.winner.label, AHEAD)
    assert any(
        "inductor can only be served as inductor at the first call: it does not export; "
        "the artifact of inductor freezing=True (aot) is kept" in line
        for line in said(document, "preferred")
    )
    assert document.complete


@pytest.fixture
def kept(tmp_path):
    document, runner = run(runner=packing())
    directory = tmp_path / "rec"
    write_recommendation(directory, document, runner.directory, "report")
    return directory


def program_of(directory):
    return directory / open_manifest(directory).files[0].path


def test_what_was_packed_is_delivered_whole(kept):
    manifest = open_manifest(kept, manifest_digest(kept))
    assert (kept / manifest.files[0].path).read_bytes() == b"machine code"


def corrupt(directory):
    program_of(directory).write_bytes(b"machine_code")
    return "is not what was packed: its digest differs"


def truncate(directory):
    program_of(directory).write_bytes(b"machine")
    return "has 7 bytes, not 12"


def remove(directory):
    program_of(directory).unlink()
    return "cannot be opened"


def swap(directory):
    program_of(directory).write_bytes(b"chine machin")
    return "its digest differs"


def link(directory):
    program = program_of(directory)
    elsewhere = directory.parent / "elsewhere.pt2"
    program.rename(elsewhere)
    program.symlink_to(elsewhere)
    return "is a link"


def link_the_directory(directory):
    package = program_of(directory).parent
    elsewhere = directory.parent / "elsewhere"
    package.rename(elsewhere)
    package.symlink_to(elsewhere)
    return "is a link"


def open_to_all(directory):
    program_of(directory).parent.chmod(0o777)
    return "can be written to by every user"


def edited_manifest(directory):
    path = directory / "manifest.json"
    path.write_text(path.read_text()[:-100])
    return "cannot be read"


def escaping(directory):
    manifest = open_manifest(directory)
    outside = FileEntry("../outside", "0" * 64, 1)
    write_manifest(directory, replace(manifest, files=(*manifest.files, outside)))
    return "is not a path within it"


def unlisted(directory):
    write_manifest(directory, replace(open_manifest(directory), files=()))
    return "names no digest for"


def of_another_version(directory):
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "manifest_version": 99}))
    return "has version 99"


FAULTS = [
    corrupt, truncate, remove, swap, link, link_the_directory, open_to_all, edited_manifest, escaping, unlisted,
    of_another_version,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_damaged_artifact_is_never_opened(kept, fault):
    said = fault(kept)
    with pytest.raises(InvalidArtifact, match=said):
        open_manifest(kept)


def test_a_pinned_artifact_is_the_only_one(kept):
    with pytest.raises(InvalidArtifact, match="has digest sha256:"):
        open_manifest(kept, "sha256:" + "0" * 64)
    with pytest.raises(InvalidValue, match="'abc' is no digest"):
        open_manifest(kept, "abc")


def test_where_there_is_none_that_is_said(tmp_path):
    with pytest.raises(InvalidRecommendation, match="holds no artifact; make one"):
        open_manifest(tmp_path)
    with pytest.raises(InvalidRecommendation, match="no such directory"):
        open_manifest(tmp_path / "none")


def test_the_directory_itself_may_be_reached_by_a_link(kept):
    (kept.parent / "current").symlink_to(kept)
    assert open_manifest(kept.parent / "current") == open_manifest(kept)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_another_users_files_are_taken_only_when_pinned(kept):
    os.chown(program_of(kept), 12345, 12345)
    pinned = manifest_digest(kept)
    with pytest.raises(InvalidArtifact, match="belongs to another user"):
        open_manifest(kept)
    assert open_manifest(kept, pinned).serving.runtime == "aot"


def test_a_new_artifact_takes_the_place_of_the_old_one(kept):
    old = program_of(kept).parent

    def packs_another(task):
        packed = packs_a_program(task)
        (Path(task.directory) / "program0.pt2").write_bytes(b"machine code, improved")
        return packed

    document, runner = run(runner=packing(packs_another))
    write_recommendation(kept, document, runner.directory, "report")
    assert program_of(kept).read_bytes() == b"machine code, improved"
    assert not old.exists()


def test_a_killed_delivery_leaves_the_old_artifact_whole(kept, monkeypatch):
    _document, runner = run()

    def killed(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("autocompile.artifact.store.write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        deliver(runner.directory, kept)
    assert open_manifest(kept).serving.runtime == "aot"
