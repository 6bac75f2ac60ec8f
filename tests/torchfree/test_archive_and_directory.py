import json
import os
import subprocess
import sys

import jsonschema
import pytest
from builders import environment, workload
from msgspec.structs import replace
from places import REPOSITORY
from test_search import run

from autocompile.artifact.directory import (
    check_output,
    check_same_workload,
    read_document,
    working_directory,
    write_recommendation,
)
from autocompile.core.environment import Gpu, GpuKind
from autocompile.core.errors import InvalidRecommendation, OutputConflict
from autocompile.core.identity import Identity
from autocompile.core.schema import document_schema
from autocompile.core.serde import to_json


@pytest.fixture(scope="module")
def found():
    return run()


@pytest.fixture(scope="module")
def document(found):
    return found[0]


def test_a_document_is_kept_and_read(tmp_path, found):
    document, runner = found
    write_recommendation(tmp_path / "rec", document, runner.directory, "report")
    assert read_document(tmp_path / "rec") == document
    assert (tmp_path / "rec" / "snippet.py").read_text() == document.snippet


def test_the_document_fits_its_published_schema(document):
    schema = json.loads((REPOSITORY / "autocompile" / "document.schema.json").read_text())
    faults = list(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(to_json(document))))
    assert faults == []


def test_the_published_schema_is_the_one_in_force():
    published = (REPOSITORY / "autocompile" / "document.schema.json").read_text()
    assert published == document_schema() + "\n", "run: autocompile schema > autocompile/document.schema.json"


def test_a_directory_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(OutputConflict, match=r"contains something else \(thesis.tex\); choose another"):
        check_output(tmp_path)
    with pytest.raises(OutputConflict, match="is a file"):
        check_output(tmp_path / "thesis.tex")
    check_output(tmp_path / "new")


def test_another_workloads_recommendation_is_left_alone(tmp_path, found):
    document, runner = found
    write_recommendation(tmp_path, document, runner.directory, "report")
    check_same_workload(tmp_path, workload(fingerprint=document.workload.fingerprint))
    other = workload(fingerprint="0" * 64, identity=Identity(tensors={"fc.weight": "4x4 float32"}))
    with pytest.raises(OutputConflict, match=r"another workload: fc.weight is new; choose another"):
        check_same_workload(tmp_path, other)
    smaller = replace(document.workload.signatures[0], weight=0.5)
    with pytest.raises(
        OutputConflict, match="another workload: its inputs have other sizes or dtypes, or occur with other frequencies"
    ):
        check_same_workload(tmp_path, workload(fingerprint="0" * 64, signatures=(smaller,)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "contains no recommendation"),
        ("{", "truncated"),
        ("{}", "missing required field"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, content, said):
    if content is not None:
        (tmp_path / "recommendation.json").write_text(content)
    with pytest.raises(InvalidRecommendation, match=said):
        read_document(tmp_path)


def test_another_schema_version_is_said(tmp_path, document):
    data = json.loads(to_json(document))
    data["schema_version"] = 99
    data["artifact"] = {"of": "another form"}
    (tmp_path / "recommendation.json").write_text(json.dumps(data))
    with pytest.raises(InvalidRecommendation, match="has schema version 99, but this version of autocompile reads 5"):
        read_document(tmp_path)


def test_what_an_earlier_version_left_is_replaced_by_tuning_the_same_workload_again(tmp_path, document):
    data = json.loads(to_json(document))
    data["schema_version"], data["artifact"] = 3, {"tier": "aot"}
    (tmp_path / "recommendation.json").write_text(json.dumps(data))
    check_same_workload(tmp_path, workload(fingerprint=document.workload.fingerprint))
    with pytest.raises(OutputConflict, match="another workload"):
        check_same_workload(tmp_path, workload(fingerprint="0" * 64))


def test_a_run_leaves_no_working_directory_behind(tmp_path):
    with working_directory(tmp_path / "rec") as work:
        (work / "large").write_text("x")
    assert not (tmp_path / "rec").exists()
    with working_directory(None) as work:
        assert work.is_dir()
    assert not work.exists()


def test_what_a_killed_run_left_is_cleared_and_a_living_one_is_respected(tmp_path):
    work = tmp_path / ".work"
    (work / "jobs").mkdir(parents=True)
    # A process with this number exists, but it is not the killed run.
    (work / "pid").write_text(str(os.getppid()))
    (work / "left").write_text("over")
    with working_directory(tmp_path) as fresh:
        assert [path.name for path in fresh.iterdir()] == ["pid"]
        (fresh / "in use").write_text("x")
        with (
            pytest.raises(OutputConflict, match=rf"another run \(process {os.getpid()}\) is working there"),
            working_directory(tmp_path),
        ):
            pass
        assert (fresh / "in use").exists()
    assert not work.exists()


def test_environments_of_one_kind_have_one_fingerprint():
    assert environment().fingerprint == environment().fingerprint
    assert environment().fingerprint != environment(torch="2.14.0").fingerprint


def test_the_gpus_in_use_make_the_kind_and_others_in_the_machine_do_not():
    one, beside = Gpu("H100", "GPU-1", 80 << 30), Gpu("L4", "GPU-2", 24 << 30)
    alone, together = environment(gpus=(one,), driver="580"), environment(gpus=(one, beside), driver="580")
    whole, cut = GpuKind("H100", "9.0", 132), GpuKind("H100 MIG 1g.10gb", "9.0", 16)
    assert alone.fingerprint_with([whole]) == together.fingerprint_with([whole])
    assert alone.fingerprint == together.fingerprint == environment().fingerprint, "on the CPU"
    smaller = GpuKind("H100", "9.0", 114)
    kinds = [[], [whole], [cut], [smaller], [whole, whole]]
    assert len({alone.fingerprint_with(gpus) for gpus in kinds}) == len(kinds)
    newer = environment(gpus=(one,), driver="590")
    assert newer.fingerprint_with([whole]) != alone.fingerprint_with([whole])
    assert newer.fingerprint == alone.fingerprint


def in_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_loads_neither_torch_nor_optuna():
    loaded = in_fresh_process(
        "import sys, autocompile; print([m for m in ('torch', 'optuna', 'numpy') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_the_command_line_and_the_search_load_no_torch():
    code = "import sys, autocompile.tuning, autocompile.cli.app, autocompile.report.text; print('torch' in sys.modules)"
    assert in_fresh_process(code) == "False"


def test_the_public_face_is_listed_and_unknown_names_are_refused():
    import autocompile

    assert {"optimize", "load", "Recommendation", "errors"} <= set(dir(autocompile))
    assert issubclass(autocompile.errors.UsageError, autocompile.errors.AutocompileError)
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        autocompile.optimise  # noqa: B018
