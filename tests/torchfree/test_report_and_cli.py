import io
import json
from importlib.metadata import version

import pytest
from builders import measurement, profile, trial, workload
from fakes import FakeClock, FakeRunner
from msgspec.structs import replace
from rich.console import Console
from test_search import BLOCKS, run, usual
from typer.testing import CliRunner

from autocompile.artifact.directory import write_recommendation
from autocompile.cli import app as cli
from autocompile.core.document import Document
from autocompile.core.profile import GraphBreak
from autocompile.core.serde import from_json
from autocompile.core.service import Service
from autocompile.report.brief import as_brief, brief
from autocompile.report.html import as_html
from autocompile.report.progress import LiveProgress
from autocompile.report.service import service_lines
from autocompile.report.text import as_text, plain_text


@pytest.fixture(scope="module")
def document():
    broken = profile(blocks=BLOCKS, graph_breaks=(GraphBreak("net.py", 3, "a print in the way"),))
    return run(runner=FakeRunner(usual, FakeClock(), profiled=broken), budget_s=200, strategy="thorough")[0]


def test_the_text_report_says_what_won_and_why(document):
    text = as_text(document)
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "inductor freezing=True" in text.splitlines()[0]
    assert "2.86x the speed of eager" in text
    assert "wrong result in phase verify: output is off by 0.1" in text
    assert "net.py:3: a print in the way" in text
    assert "2 repeated Layer blocks (layers.0 to layers.1)" in text
    assert "of the budget" in text
    assert "torch.compile(model, options={'freezing': True})" in text
    assert max(map(len, text.splitlines())) <= 120


def test_in_short_it_is_the_verdict_the_leading_rows_the_artifact_and_where_to_read_on(document):
    text = as_brief(document)
    assert text.splitlines()[0] == as_text(document).splitlines()[0]
    titles = [line for line in text.splitlines() if line.replace(" ", "").isalpha() and line == line.capitalize()]
    assert titles == ["Artifact", "Read on"]
    for further in ("rec.explain()", "rec.save(DIR)", "autocompile show DIR", "DIR/report.html"):
        assert further in text
    assert len(text.splitlines()) < len(as_text(document).splitlines()) / 2
    assert max(map(len, text.splitlines())) <= 120


def test_the_short_table_has_the_best_plain_compile_and_the_baseline_and_counts_the_rest(document):
    entries = document.trials
    assert len(entries) > 10, "the test needs a long table"
    rows = [line[:4].strip() for line in as_brief(document).split("\n\n")[1].splitlines()]
    assert {str(e.rank) for e in entries if e.origin in ("baseline", "plain") and e.rank} <= set(rows)
    assert {"1", "2", "3", "4", "5", "6"} <= set(rows)
    shown = sum(row.isdigit() for row in rows)
    failed = sum(e.failure is not None for e in entries)
    assert f"and {len(entries) - shown} more, of which {failed} failed" in as_brief(document)


def test_a_short_table_leaves_nothing_out():
    assert " more" not in as_brief(run(budget_s=60)[0])


def test_what_the_user_should_know_has_its_own_section(document):
    assert "What to know" not in as_brief(document)
    noticed = replace(document, notices=("the model is in training mode", "others use this host"))
    for text in (as_brief(noticed), as_text(noticed)):
        after = text.split("What to know\n", 1)[1].splitlines()
        assert [line.strip() for line in after[:2]] == list(noticed.notices)


def test_what_is_kept_is_read_on_where_it_lies(document):
    text = plain_text(brief(document, "out/rec"))
    assert "autocompile show out/rec" in text
    assert "out/rec/report.html" in text
    assert "rec.save" not in text


def test_leaving_it_eager_is_said_plainly():
    assert "leave it eager" in as_text(run(calls=10)[0])


@pytest.mark.parametrize(
    ("device", "kind", "told"),
    [("cpu", "training", True), ("cuda:0", "inference", True), ("cuda:0", "training", False)],
)
def test_how_long_steps_take_on_a_gpu_is_not_told_where_they_are_not_waited_for(document, device, kind, told):
    served = Service("Net", "inductor", {"inductor": 5}, first_s=0.5, mean_ms=3.0, kind=kind)
    there = replace(document, workload=replace(document.workload, device=device))
    text = "\n".join(service_lines(there, [served], {}))
    assert ("3 ms" in text) == told
    assert "0.5 s for the first one" in text


def test_html_is_self_contained_and_escapes(document):
    html = as_html(document)
    assert html.startswith("<pre")
    assert "<script" not in html
    assert "inductor" in html


def test_progress_is_a_line_a_trial_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=100)
    with LiveProgress(60, console) as live:
        live.on_stage("search")
        live.on_task("inductor")
        live.on_phase("timing")
        live.on_trial(trial(1, 0.5))
    assert "inductor: 2.00x" in console.file.getvalue()
    assert len(console.file.getvalue().splitlines()) == 1


@pytest.mark.parametrize(("kind", "said"), [("inference", "5 ms a call"), ("training", "5 ms a step")])
def test_progress_speaks_of_what_is_tuned(kind, said):
    console = Console(file=io.StringIO(), width=100)
    with LiveProgress(60, console) as live:
        live.on_workload(workload(kind=kind))
        live.on_trial(trial(1, 0.5))
    assert console.file.getvalue().rstrip().endswith(said)


def test_progress_on_a_terminal_shows_the_best_and_what_runs():
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with LiveProgress(60, console) as live:
        live.on_stage("search")
        live.on_task("inductor amp=bf16")
        live.on_trial(trial(1, 0.5, label="inductor"))
        live.on_phase("compile")
    drawn = console.file.getvalue()
    assert "best so far inductor (2.00x)" in drawn
    assert "now: inductor amp=bf16, compile" in drawn


def test_show_prints_what_was_kept(tmp_path):
    document, runner = run()
    write_recommendation(tmp_path, document, runner.directory, "report")
    shown = CliRunner().invoke(cli.app, ["show", str(tmp_path)])
    assert shown.exit_code == 0
    assert "inductor freezing=True" in shown.stdout
    as_json = CliRunner().invoke(cli.app, ["show", str(tmp_path), "--json"])
    assert from_json(as_json.stdout, Document) == document


def test_the_version_is_that_of_the_distribution():
    assert CliRunner().invoke(cli.app, ["--version"]).stdout == f"autocompile {version('torch-autocompile')}\n"


def test_schema_is_printed():
    printed = json.loads(CliRunner().invoke(cli.app, ["schema"]).stdout)
    assert "Document" in printed["$defs"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "none.py"], "autocompile: none.py: no such script; give the path of a Python file"),
        (["profile", "none.py"], "autocompile: none.py: no such script; give the path of a Python file"),
        (["show", "nowhere"], "autocompile: nowhere: contains no recommendation"),
        (["tune", __file__, "--budget", "soon"], "autocompile: --budget: cannot read 'soon' as a duration"),
        (["tune", __file__, "--calls", "0"], "autocompile: --calls: 0 calls is not a number of calls; give 1 or more"),
        (
            ["tune", __file__, "--calls", "5", "--horizon", "1h"],
            "autocompile: --calls and --horizon cannot be combined; give one of the two",
        ),
        (
            ["tune", __file__, "--percentile", "99"],
            "neither the objective nor a limit is a latency; give --max-latency, or use --objective latency",
        ),
        (["tune", __file__, "--workers", "many"], "autocompile: --workers: 'many' is not a number of workers; give a"),
        (["tune", __file__, "--strategy", "fast"], "autocompile: strategy: there is no strategy 'fast'"),
        (["tune", __file__, "--output", __file__], "is a file; choose another output directory"),
        (
            ["tune", __file__, "--layers", "4"],
            "put the script's own arguments after `--`, or see `autocompile tune --help`",
        ),
        (["show", "rec", "--call", "4"], "autocompile show: No such option: --call"),
        (["export", "rec"], "autocompile export: Missing argument 'script'; see `autocompile export --help`"),
        (["tune", __file__, "--budget"], "requires an argument; see `autocompile tune --help`"),
        (["tunes"], "No such command 'tunes'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, said, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["autocompile", *arguments])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([__file__, "--layers", "4"], [__file__, "--layers", "4"]),
        ([__file__, "--", "--layers", "4"], [__file__, "--layers", "4"]),
        ([__file__, "4", "--", "5"], [__file__, "4", "--", "5"]),
        (["-m", "json.tool", "--", "--indent", "4"], ["-m", "json.tool", "--indent", "4"]),
    ],
)
def test_run_takes_a_scripts_arguments_with_or_without_dashes(given, passed, monkeypatch):
    started = []
    monkeypatch.setattr("sys.argv", ["autocompile", "run", "rec", *given])
    monkeypatch.setattr("autocompile.artifact.directory.read_document", lambda _directory: None)
    monkeypatch.setattr("os.execv", lambda _program, command: started.append(command))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert started[0][-len(passed) - 1 :] == ["rec", *passed]


def test_finals_are_shown_as_such():
    console = Console(file=io.StringIO(), width=100)
    live = LiveProgress(60, console)
    live.on_task("final 1: inductor")
    live.on_trial(trial(1, 0.5, finals=[measurement(0.25)]))
    assert "final 1: inductor: 4.00x" in console.file.getvalue()
