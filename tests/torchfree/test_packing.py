"""The winner's artifact: how it is served, why not in a better way, and what is kept."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from builders import failure, measurement, workload
from fakes import FakeClock, FakeRunner, packs_a_program, packs_either
from msgspec.structs import replace
from servings import AHEAD, AS_IT_IS, CARRIED, COMPILING
from test_search import run, said, usual

from autocompile.artifact import integrity
from autocompile.artifact.directory import write_recommendation
from autocompile.artifact.integrity import entry_for, manifest_digest, open_artifact, open_manifest, write_manifest
from autocompile.artifact.store import deliver
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue
from autocompile.core.goal import Goal
from autocompile.core.job import FreshTask, Packed, TrialTask
from autocompile.core.manifest import FileEntry, Manifest, Requirements
from autocompile.core.plan import Plan
from autocompile.core.serde import from_json
from autocompile.core.workload import TorchSettings
from autocompile.report.story import story
from autocompile.report.text import as_text
from autocompile.search.packages import manifest_of

FOREVER = Goal(calls=1_000_000)
NOT_AHEAD = failure("unsupported", "pack", "it does not export")


def packing(packs=packs_a_program, **fields):
    return FakeRunner(usual, FakeClock(), packs=packs, **fields)


def cached(**fields):
    """Of a model that no program can be made of ahead."""
    return packing(lambda task: packs_either(task) if task.serving == CARRIED else NOT_AHEAD, **fields)


def tuned(runner, goal=FOREVER, **fields):
    return run(runner=runner, goal=goal, **fields)


def test_the_winner_is_what_was_packed_for_its_trial_and_its_figures_are_those_of_what_is_loaded():
    document, runner = tuned(packing(artifact=measurement(0.3, startup_s=0.03)))
    entry, winner = document.artifact, document.winner
    assert (winner.label, entry.label) == ("aot freezing=True", "aot freezing=True")
    assert (entry.serving, entry.absences, entry.untimed) == (AHEAD, (), "")
    assert winner.startup_s == pytest.approx(0.03), "the start of a new process, measured last"
    assert winner.packing_s == pytest.approx(8.0)
    text = " ".join(as_text(document).split())
    assert "Packed (aot): this is what `load` serves." in text
    assert "8 s to compile, once" in text
    assert entry.digest in text
    own, *others = open_manifest(runner.directory, entry.digest).served
    assert own.serving == AHEAD
    assert (own.startup_s, own.speedup) == (winner.startup_s, winner.speedup)
    assert {one.serving for one in others} <= {COMPILING, AS_IT_IS}


def test_a_program_is_packed_once_for_all_processes_that_measure_it():
    _document, runner = tuned(packing())
    assert len(runner.packed) == len({plan.key for plan in runner.packed_plans})


def test_beside_what_holds_its_weights_lies_what_follows_them():
    document, runner = tuned(packing())
    manifest = open_manifest(runner.directory)
    assert document.artifact.standby == manifest.standby.plan.runtime == "aot"
    assert not manifest.standby.plan.settings
    assert {entry.path for entry in manifest.standby.files} <= {entry.path for entry in manifest.all_files}
    assert "changed weights are served by aot, compiled, on the model's own weights" in as_text(document)


def fixed_is_faster(plan):
    ratio, startup_s = usual(plan) if not plan.autocast else (1.0, 1.0)
    return ratio * (0.8 if plan.sizes else 1.0), startup_s


@pytest.mark.parametrize("given", ["one size", "two sizes"])
def test_a_program_for_the_given_sizes_alone_has_one_beside_it_for_others(given):
    some = workload().signatures * (1 if given == "one size" else 2)
    document, runner = tuned(FakeRunner(fixed_is_faster, FakeClock(), packs=packs_a_program), signatures=some)
    standby = open_manifest(runner.directory).standby
    assert standby.plan == Plan(runtime="aot")
    if given == "one size":
        assert document.winner.plan.sizes == "fixed"
        assert document.artifact.standby_for == ("weights", "sizes")
        assert "changed weights and other sizes are served by aot, compiled" in as_text(document)
    else:
        assert not document.winner.plan.sizes
        assert "sizes=fixed: the given calls differ in size" in said(document, "narrowed")


def test_a_program_on_the_models_weights_for_the_given_sizes_alone_has_one_beside_it_too():
    def only_live(plan):
        is_live = plan.runtime in ("eager", "inductor", "aot") and not plan.settings.get("options", {}).get("freezing")
        return fixed_is_faster(plan) if is_live else NOT_AHEAD

    document, runner = tuned(FakeRunner(only_live, FakeClock(), packs=packs_a_program))
    assert document.winner.plan == Plan(runtime="aot", sizes="fixed")
    assert open_manifest(runner.directory).standby.plan == Plan(runtime="aot")
    assert document.artifact.standby_for == ("sizes",)


def test_where_there_is_no_time_for_it_that_is_said():
    only_frozen = "freezing"

    def answer(plan):
        if plan.runtime == "aot" and only_frozen not in plan.settings.get("options", {}):
            return failure("error", "pack", "it breaks")
        return usual(plan)

    document, runner = run(runner=FakeRunner(answer, FakeClock(), packs=packs_a_program), goal=FOREVER)
    assert open_manifest(runner.directory).standby is None
    assert [absence.reason for absence in document.artifact.absences] == ["for changed weights: it breaks"]


def test_what_starts_from_a_cache_is_measured_as_it_is_loaded():
    document, _ = tuned(cached(artifact=measurement(0.3, startup_s=1.5)))
    assert (document.artifact.serving, document.winner.processes) == (CARRIED, 3)
    assert document.winner.startup_s == pytest.approx(1.5)
    assert document.winner.speedup.value == pytest.approx(1 / 0.3, rel=0.01)
    assert document.winner.packing_s == pytest.approx(8.0)


def test_who_does_not_hold_what_was_promised_loses_to_who_does():
    """From its cache the winner reads slower than it was measured, and another one wins then."""

    class Disappoints(FakeRunner):
        def load(self, task, limits):
            reply = super().load(task, limits)
            frozen = "freezing" in task.plan.settings.get("options", {})
            return replace(reply, ratio=measurement(0.9).ratio) if frozen else reply

    runner = Disappoints(usual, FakeClock(), packs=cached().packs)
    document, _ = tuned(runner, budget_s=3000.0)
    assert document.winner.label == document.artifact.label == "inductor"
    assert any("as loaded inductor freezing=True takes 9 ms a call" in line for line in said(document, "preferred"))


def test_what_does_not_export_is_no_candidate_and_what_cannot_be_carried_compiles():
    document, _ = run(goal=FOREVER)
    assert document.artifact.start == "compile"
    assert [(a.serving, a.reason) for a in document.artifact.absences] == [(CARRIED, "it does not export")]
    assert "not packed as inductor from its cache: it does not export" in as_text(document)
    failed = {entry.label: entry.failure.message for entry in document.trials if entry.failure}
    assert failed["aot"] == "it does not export"


def test_a_cache_that_is_wrong_when_loaded_is_not_kept():
    document, _ = tuned(cached(artifact=failure("wrong_result", "verify", "output is off")))
    assert document.artifact.start == "compile"
    assert document.artifact.absences[0].reason == "it failed when it was loaded: output is off"


def test_a_program_that_is_wrong_when_it_is_started_afresh_has_failed():
    document, _ = tuned(packing(artifact=failure("wrong_result", "verify", "output is off")))
    assert (document.winner.plan.runtime, document.artifact.start) == ("inductor", "compile")
    failed = next(entry for entry in document.trials if entry.label == "aot freezing=True")
    assert failed.failure.message == "it failed when it was loaded: output is off"


def test_the_best_without_an_artifact_stands_beside_the_winner():
    document, _ = tuned(packing())
    without = document.without_artifact
    assert without.winner.plan.runtime == "inductor"
    assert without.winner.startup_s == pytest.approx(8.0)
    assert without.winner.packing_s == 0.0
    assert without.envelope[-1].label == without.winner.label
    assert any(
        line.startswith(f"Without an artifact {without.winner.label} is best: 2.86x, 8 s to start, which is paid back")
        for line in story(document)
    )


def test_eager_needs_no_packing():
    document, runner = run(
        lambda plan: (1.0 if plan.is_eager else 1.2, 8.0 if not plan.is_eager else 0.0), goal=FOREVER
    )
    assert document.artifact.runtime == "eager"
    assert document.artifact.absences == ()
    assert CARRIED not in runner.packed


def test_packing_has_its_share_of_the_budget_and_no_more():
    runner = cached(pack_s={"cache": 1e6})
    document, _ = tuned(runner)
    (absence,) = document.artifact.absences
    assert absence.reason.startswith("packing took more than the ")
    assert "skipped" in {decision.action for decision in document.decisions}
    assert runner.clock.now <= 600.0


def test_ctrl_c_while_packing_keeps_the_verdict():
    def stopped(task):
        if task.serving == CARRIED:
            raise KeyboardInterrupt
        return NOT_AHEAD

    document, _ = tuned(packing(stopped))
    assert not document.complete
    assert document.artifact.start == "compile"
    assert document.artifact.label == document.winner.label
    assert any("packing: interrupted by the user" in line for line in said(document, "stopped"))


class Interrupted(FakeRunner):
    """The user interrupts the run while the artifact is timed, after so many processes."""

    loads = 0
    after = 0

    def load(self, task, limits):
        if task.artifact not in self.started:
            return super().load(task, limits)
        if self.loads >= self.after:
            raise KeyboardInterrupt
        self.loads += 1
        return super().load(task, limits)


class Asked(FakeRunner):
    """Notes what it is asked of an artifact, in order."""

    def run(self, task, limits):
        if isinstance(task, FreshTask) or (isinstance(task, TrialTask) and task.artifact):
            vars(self).setdefault("of_artifacts", []).append(type(task))
        return super().run(task, limits)


def test_a_start_is_measured_before_another_process_holds_the_device():
    runner = Asked(usual, FakeClock(), packs=cached().packs)
    document, _ = tuned(runner)
    assert document.artifact.serving == CARRIED
    assert runner.of_artifacts == [FreshTask, TrialTask] * 3


def test_a_start_that_fails_leaves_the_configuration():
    class Broken(FakeRunner):
        def start(self, task, limits):
            return failure("error", "start-up", "a fresh start failed: no kernel image")

    document, _ = tuned(Broken(usual, FakeClock(), packs=cached().packs))
    assert document.artifact.start == "compile"
    assert any("no kernel image" in line for line in said(document, "skipped"))


def test_ctrl_c_while_a_cache_is_timed_keeps_it_as_not_timed():
    runner = Interrupted(usual, FakeClock(), packs=cached().packs)
    document, _ = tuned(runner)
    assert (document.artifact.serving, document.artifact.untimed) == (CARRIED, "interrupted")
    assert open_manifest(runner.directory, document.artifact.digest).serving == CARRIED
    assert not document.complete
    text = " ".join(as_text(document).split())
    assert "Packed and verified (inductor from its cache), but not timed after loading: interrupted." in text
    assert "Stopped: interrupted by the user; this is the best so far." in text


def test_ctrl_c_after_one_process_keeps_what_that_one_measured():
    runner = Interrupted(usual, FakeClock(), packs=cached().packs, artifact=measurement(0.3, startup_s=1.5))
    runner.after = 1
    document, _ = tuned(runner)
    assert (document.artifact.serving, document.winner.processes, document.artifact.untimed) == (CARRIED, 1, "")
    assert document.winner.speedup.value == pytest.approx(1 / 0.3, rel=0.01)
    assert not document.complete


def test_what_misses_a_limit_as_loaded_does_not_win():
    runner = cached(artifact=measurement(1.0, startup_s=0.05))
    document, _ = tuned(runner, Goal(max_latency="8ms"), budget_s=3000)
    assert not document.is_feasible
    missed = [entry for entry in document.trials if entry.status == "measured" and entry.excess["max_latency"] > 0]
    assert len(missed) == len([entry for entry in document.trials if entry.status == "measured"])


class Growing(FakeRunner):
    """What is measured as it is delivered takes more memory than before."""

    def load(self, task, limits):
        return replace(super().load(task, limits), peak_memory_bytes=3 << 20)


def threads_help(plan):
    return (0.5, 0.1) if plan.is_eager and plan.threads else (1.0, 0.1)


def test_what_exceeds_a_limit_when_it_is_measured_for_delivery_is_not_offered_for_other_numbers_of_calls(tmp_path):
    strategy = tmp_path / "eager.toml"
    strategy.write_text("[dimensions]\nruntime = []\nthreads = [0, 1]\n[finals]\nprocesses = 2\n")
    runner = Growing(threads_help, FakeClock())
    document, _ = tuned(runner, Goal(calls=1_000_000, max_memory="2MiB"), strategy=str(strategy))
    grown = next(entry for entry in document.trials if entry.label.startswith("eager threads="))
    assert grown.verdict == "beyond a limit"
    assert document.winner.label == "eager"
    assert {segment.label for segment in open_manifest(runner.directory).envelope} == {"eager"}
    assert document.without_artifact.winner.label == "eager"


@pytest.fixture
def kept(tmp_path):
    document, runner = tuned(packing())
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
    return "is writable by every user"


def edited_manifest(directory):
    path = directory / "manifest.json"
    path.write_text(path.read_text()[:-100])
    return "cannot be read"


def escaping(directory):
    manifest = open_manifest(directory)
    outside = FileEntry("../outside", "0" * 64, "0" * 64, 1)
    write_manifest(directory, replace(manifest, files=(*manifest.files, outside)))
    return "is not a path within it"


def unlisted(directory):
    write_manifest(directory, replace(open_manifest(directory), files=(), standby=None))
    return "contains no digest of"


def of_another_version(directory):
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "manifest_version": 99}))
    return "has version 99, but this version of autocompile reads .*; upgrade autocompile, or tune again"


FAULTS = [
    corrupt, truncate, remove, swap, link, link_the_directory, open_to_all, edited_manifest, escaping, unlisted,
    of_another_version,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_damaged_artifact_is_never_opened(kept, fault):
    said = fault(kept)
    with pytest.raises(InvalidArtifact, match=said):
        open_manifest(kept)


@pytest.mark.parametrize("size", [0, 1, 2 << 20, (2 << 20) + 1, 5 << 20])
@pytest.mark.parametrize("shared", [False, True])
def test_every_piece_of_a_file_is_checked(kept, size, shared):
    """Whether the file is read again later, or its content is kept because the group may write to it."""
    manifest = open_manifest(kept)
    program = kept / manifest.files[0].path
    content = os.urandom(size)
    program.write_bytes(content)
    program.chmod(0o664 if shared else 0o644)
    entry = entry_for(kept, manifest.files[0].path)
    if size <= 2 << 20:
        assert entry.sha256 == hashlib.sha256(content).hexdigest()
    write_manifest(kept, replace(manifest, files=(entry, *manifest.files[1:]), standby=None))
    pinned = manifest_digest(kept)
    for digest in (None, pinned):
        assert open_artifact(kept, digest).held == ({entry.path: content} if shared else {})
    for place in {0, size // 2, size - 1} if size else ():
        changed = bytearray(content)
        changed[place] ^= 1
        program.write_bytes(changed)
        for digest in (None, pinned):
            with pytest.raises(InvalidArtifact, match="its digest differs"):
                open_artifact(kept, digest)


@pytest.mark.parametrize(
    ("compared", "pinned", "mode"),
    [("checksum", False, 0o644), ("sha256", True, 0o644), ("sha256", False, 0o664)],
    ids=["neither", "pinned", "another user could write"],
)
def test_files_are_compared_by_sha256_where_that_says_more_than_a_checksum(kept, compared, pinned, mode):
    manifest = replace(open_manifest(kept), standby=None)
    entry, *others = manifest.files
    (kept / entry.path).chmod(mode)

    def opened_with(wrong):
        write_manifest(kept, replace(manifest, files=(replace(entry, **{wrong: "0" * 64}), *others)))
        open_manifest(kept, manifest_digest(kept) if pinned else None)

    (ignored,) = {"checksum", "sha256"} - {compared}
    opened_with(ignored)
    with pytest.raises(InvalidArtifact, match="its digest differs"):
        opened_with(compared)


def test_a_file_is_read_to_the_end_of_a_piece_however_little_comes_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(content := os.urandom(3 << 20))
    expected = entry_for(tmp_path, "file")

    class Slow:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_fault):
            self.stream.close()

        def seek(self, start):
            self.stream.seek(start)

        def readinto(self, block):
            return self.stream.readinto(block[:1000])

    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *mode, **more: Slow(opened(path, *mode, **more)))
    assert entry_for(tmp_path, "file") == expected
    pieces = [hashlib.sha256(content[start : start + (2 << 20)]).digest() for start in (0, 2 << 20)]
    assert expected.sha256 == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_an_artifact_that_is_replaced_during_the_check_is_checked_anew(kept, monkeypatch):
    """The file of the first manifest is gone when it is to be read."""
    program, read = program_of(kept), integrity._digest

    def replaced_meanwhile(path, *arguments):
        if path == program and program.exists():
            other = program.with_name("other.bin")
            program.rename(other)
            manifest = from_json((kept / "manifest.json").read_bytes(), Manifest)
            renamed = {manifest.files[0].path: str(other.relative_to(kept))}
            entries = [replace(one, path=renamed.get(one.path, one.path)) for one in manifest.files]
            packed = [replace(one, files=(other.name, *one.files[1:])) for one in manifest.programs]
            write_manifest(kept, replace(manifest, files=tuple(entries), programs=tuple(packed), standby=None))
        return read(path, *arguments)

    monkeypatch.setattr(integrity, "_digest", replaced_meanwhile)
    assert open_manifest(kept).files[0].path.endswith("other.bin")


def test_a_file_that_others_may_write_to_has_its_size_when_it_is_read(kept, monkeypatch):
    program = program_of(kept)
    program.chmod(0o664)
    monkeypatch.setattr(Path, "read_bytes", lambda path, read=Path.read_bytes: read(path) + b"more" * (path == program))
    with pytest.raises(InvalidArtifact, match="has 16 bytes, not 12"):
        open_artifact(kept)


def test_a_pinned_artifact_is_the_only_one(kept):
    with pytest.raises(InvalidArtifact, match="has digest sha256:"):
        open_manifest(kept, "sha256:" + "0" * 64)
    with pytest.raises(InvalidValue, match="'abc' is not a digest"):
        open_manifest(kept, "abc")


def test_where_there_is_none_that_is_said(tmp_path):
    with pytest.raises(InvalidRecommendation, match="contains no artifact; create one"):
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

    document, runner = tuned(packing(packs_another))
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


def test_an_artifact_records_the_precision_that_torch_was_set_to(tmp_path):
    settings = TorchSettings(2, "high", "float32", False, False, True, precisions={"cuda.matmul": "tf32"})
    (tmp_path / AHEAD.name).mkdir()
    packed = Packed((), Requirements("2.13.0", "x86_64", (), ""))
    manifest = manifest_of(workload(settings=settings), Plan(runtime=AHEAD.runtime), AHEAD, packed, tmp_path)
    write_manifest(tmp_path, manifest)
    assert open_manifest(tmp_path).settings == settings
