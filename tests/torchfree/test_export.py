"""Exported files, from the view of the modules that decide: formats, paths and messages."""

import sys

import pytest
from msgspec.structs import replace
from test_search import run
from typer.testing import CliRunner

from autocompile.artifact.directory import write_recommendation
from autocompile.artifact.exported import README, RECORD, check_export_directory, put_export
from autocompile.cli import app as cli
from autocompile.core.errors import InvalidValue, OutputConflict
from autocompile.core.export import EXPORT_VERSION, Export, Input, Interface, Output, Verified
from autocompile.core.plan import Plan
from autocompile.core.program import Axis
from autocompile.report.export import export_lines, readme_of
from autocompile.runtime import format as formats_module
from autocompile.runtime.catalogue import format_named, formats, kind
from autocompile.runtime.example import Code, example_text
from autocompile.runtime.format import Format
from autocompile.search.export import plan_of_file, usable_format
from autocompile.space.surroundings import Surroundings

INTERFACE = Interface(
    inputs=(
        Input("ids", "ids", 0, "int64", ("n0", 7), (2, 7), 0, 49),
        Input("batch_mask", "batch['mask']", 2, "bool", ("n0", 7), (2, 7), 0, 1),
    ),
    outputs=(Output("output_logits", ("output['logits']", "output['again']")),),
    gives=(0, 0),
    fixed={"width": "16"},
    unused=("spare",),
    literals={"output['name']": "'net'"},
    notes=("no integer of `ids` may be beyond 7",),
)
EXPORT = Export(
    export_version=EXPORT_VERSION,
    format="onnx",
    meaning="a portable graph",
    file="model.onnx",
    files=("example.py", "model.onnx", README, RECORD),
    workload="Net",
    fingerprint="0123",
    device_type="cpu",
    label="defaults",
    plan=Plan(runtime="onnxruntime"),
    interface=INTERFACE,
    axes=(Axis("n0", 1, 32),),
    verified=Verified("float64", 13, 1.3e-7, 1.1e-5, "output['logits']"),
    libraries={"torch": "2.13.0"},
    host="a processor",
    created="2026-01-01T00:00:00+00:00",
)


@pytest.fixture
def made(tmp_path):
    directory = tmp_path / "made"
    directory.mkdir()
    (directory / "model.onnx").write_bytes(b"graph")
    (directory / "example.py").write_text("")
    return directory


def test_formats_are_a_capability_of_runtimes():
    assert set(formats()) == {"onnx", "openvino", "pt2"}
    for name, (own, form) in formats().items():
        assert form in own.formats
        assert form.name == name
        assert form.implementation.startswith(f"autocompile.runtime.{own.name}.")
    assert not kind("eager").formats


def test_an_unknown_format_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidValue, match=r"there is no format 'tflite'; give one of .*onnx"):
        format_named("tflite")


def test_a_missing_library_is_told_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(formats_module, "_version", lambda name: "" if name == "onnxscript" else "1.0")
    own, _form = format_named("onnx")
    with pytest.raises(InvalidValue) as refused:
        usable_format("onnx")
    assert "onnx needs onnxscript, which is not installed" in str(refused.value)
    assert own.install in str(refused.value)


def test_one_of_several_distributions_that_bring_the_same_is_enough(monkeypatch):
    monkeypatch.setattr(formats_module, "_version", lambda name: "1.0" if name == "that-gpu" else "")
    either = Format("this", "a file", "file", "nowhere", needs=(("that", "that-gpu"),))
    assert not either.missing()
    assert either.versions() == {"that-gpu": "1.0"}


def test_what_is_put_there_is_whole_and_replaces_an_earlier_export_only(made, tmp_path):
    target = tmp_path / "deep" / "out"
    put_export(made, target, EXPORT, "read me")
    assert {path.name for path in target.iterdir()} == set(EXPORT.files)
    (made / "model.onnx").write_bytes(b"another")
    put_export(made, target, EXPORT, "read me")
    assert (target / "model.onnx").read_bytes() == b"another"
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    (target / "mine.txt").write_text("")
    with pytest.raises(OutputConflict, match=r"contains something else \(mine.txt\)"):
        put_export(made, target, EXPORT, "read me")


def test_a_file_a_full_directory_and_the_current_one_are_refused(tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("of somebody else")
    with pytest.raises(OutputConflict, match="contains something else"):
        check_export_directory(tmp_path / "full")
    with pytest.raises(OutputConflict, match="is a file"):
        check_export_directory(tmp_path / "full" / "README.md")
    with pytest.raises(OutputConflict, match="is not writable"):
        check_export_directory(tmp_path / "full" / "README.md" / "below")
    (tmp_path / "empty").mkdir()
    check_export_directory(tmp_path / "empty")
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(OutputConflict, match="is the current directory"):
        check_export_directory(tmp_path / "empty")


def test_the_readme_tells_what_is_taken_what_is_given_and_how_it_was_verified(tmp_path):
    text = readme_of(EXPORT)
    for told in (
        "| `batch_mask` | `batch['mask']` | bool | (n0, 7) |",
        "`n0` may be from 1 to 32",
        "`width` is `16`",
        "`spare` is not an input of the file",
        "No integer of `ids` may be beyond 7.",
        "| `output_logits` | `output['logits']`, `output['again']` |",
        "`output['name']` is always `'net'`.",
        "Verified against the float64 reference with 13 calls",
        "torch 2.13.0",
    ):
        assert told in text
    lines = list(export_lines(EXPORT, tmp_path))
    assert str(tmp_path / "model.onnx") in lines[0]
    assert "1.3e-07 (relative root mean square); the limit is 1.1e-05" in lines[1]


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_examples_are_python(arrays):
    form = Format("this", "a file", "file.bin", "nowhere")
    code = Code("numpy", "from pathlib import Path", "", "    return list(inputs)")
    text = example_text(form, "Net", INTERFACE, code, arrays=arrays)
    compile(text, "example.py", "exec")
    assert '"batch_mask": ("bool", (2, 7), 0, 1),' in text
    assert "import autocompile" not in text


def exported(monkeypatch, *arguments):
    """What the command line says of a fault, and its exit status."""
    monkeypatch.setattr(sys, "argv", ["autocompile", "export", *map(str, arguments), "--quiet"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_a_file_has_the_winners_settings_and_takes_all_sizes():
    document, _runner = run()
    own, around = kind("onnxruntime"), Surroundings("cpu", 2, True, False, 1)
    assert plan_of_file(document, own, around) == ("onnxruntime with its defaults", Plan(runtime="onnxruntime"))
    plan = Plan(runtime="onnxruntime", settings={"spinning": True}, sizes="fixed")
    winner = replace(document.winner, plan=plan, label="onnxruntime sizes=fixed spinning=True")
    found = plan_of_file(replace(document, winner=winner), own, around)
    assert found == ("onnxruntime spinning=True", replace(plan, sizes=""))


def test_the_command_refuses_in_one_line_before_anything_runs(tmp_path, monkeypatch, capsys):
    recommendation, script, target = tmp_path / "rec", tmp_path / "net.py", tmp_path / "out"
    script.write_text("model, inputs = print, None\n")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").write_text("")
    document, runner = run()
    write_recommendation(recommendation, document, runner.directory, "report")
    for arguments, said in (
        ((tmp_path, script, "--to", "onnx", target), "contains no recommendation"),
        ((recommendation, tmp_path / "none.py", "--to", "onnx", target), "no such script"),
        ((recommendation, script, "--to", "tflite", target), "there is no format 'tflite'"),
        ((recommendation, script, "--to", "pt2", taken), "contains something else (thesis.tex)"),
        ((recommendation, script, "--to", "pt2", target, "--budget", "soon"), "--budget"),
    ):
        assert exported(monkeypatch, *arguments) == 2
        told = capsys.readouterr().err
        assert said in told
        assert len(told.strip().splitlines()) == 1
    assert not target.exists()


def test_help_names_the_formats():
    shown = CliRunner().invoke(cli.app, ["export", "--help"]).stdout
    assert all(name in shown for name in formats())
