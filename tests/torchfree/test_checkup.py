"""The report of `autocompile doctor` on the runtimes."""

import pytest
from builders import environment

from autocompile import checkup
from autocompile.checkup import Finding
from autocompile.cli.doctor import doctor
from autocompile.core.outcome import Toolchain
from autocompile.runtime.catalogue import kind, kinds
from autocompile.runtime.kind import Kind

WORKS = Toolchain(1.0, "AVX2")
NO_COMPILER = Toolchain(1.0, "", "InvalidCxxCompiler: No working C++ compiler found")


class Plugged(Kind):
    name, meaning, implementation, library = "plugged", "of a test", "nowhere", "msgspec"


class Lacking(Kind):
    name, meaning, implementation, library = "lacking", "of a test", "nowhere", "no-such-distribution"


class Extra(Lacking):
    extra = "lacking"


def findings(monkeypatch, *more, broken=(), **toolchains):
    listed = (*kinds(), *more)
    monkeypatch.setattr(checkup, "kinds", lambda: listed)
    monkeypatch.setattr(checkup, "broken", lambda: broken)
    return {one.subject: one for one in checkup._of_runtimes(environment(), toolchains)}


def test_every_runtime_is_listed_with_its_version(monkeypatch):
    said = findings(monkeypatch, Plugged(), cpu=WORKS)
    assert list(said) == [f"runtime {kind.name}" for kind in (*kinds(), Plugged())]
    assert {said[f"runtime {name}"].state for name in ("eager", "inductor", "aot", "plugged")} == {"good"}
    assert said["runtime eager"].found == "torch's operators, one by one (torch 2.13.0)"
    assert said["runtime plugged"].found == f"of a test (msgspec {Plugged().version()})"


def test_one_whose_library_is_missing_is_told_with_what_to_install(monkeypatch):
    missing = {"lacking": "runtime lacking: nothing.of_it cannot be imported (no module); install it"}
    said = findings(monkeypatch, Lacking(), cpu=Toolchain(1.0, "AVX2", missing=missing))["runtime lacking"]
    assert said.state == "missing"
    assert said.found == "runtime lacking: nothing.of_it cannot be imported (no module)"
    assert said.remedy == "pip install no-such-distribution"


def test_one_that_lacks_a_compiler_is_told_and_one_device_is_enough(monkeypatch):
    assert findings(monkeypatch, cpu=NO_COMPILER)["runtime inductor"].state == "missing"
    assert findings(monkeypatch, cpu=NO_COMPILER)["runtime eager"].state == "good"
    assert findings(monkeypatch, cpu=NO_COMPILER, cuda=WORKS)["runtime inductor"].state == "good"


def test_what_one_lacks_on_one_of_several_devices_is_told(monkeypatch):
    headers = {"aot": "AOTInductor cannot compile for CUDA (cuda.h: No such file); install the CUDA toolkit"}
    said = findings(monkeypatch, cpu=WORKS, cuda=Toolchain(1.0, "NVIDIA H100", missing=headers))
    assert said["runtime aot"].state == "good"
    on_gpu = said["runtime aot on cuda"]
    assert (on_gpu.state, on_gpu.remedy) == ("missing", "install the CUDA toolkit")
    assert "cuda.h: No such file" in on_gpu.found


def test_what_is_broken_is_told(monkeypatch):
    said = findings(monkeypatch, broken=("the runtime 'x' of y cannot be imported (ValueError: z)",), cpu=WORKS)
    assert said["runtime"].state == "missing"
    assert "of y cannot be imported" in said["runtime"].found


def test_a_library_that_is_not_installed_has_no_version():
    assert Lacking().version() == kind("eager").version() == ""
    assert Plugged().version()


def test_an_extra_that_is_not_installed_is_optional(monkeypatch):
    missing = {"lacking": "runtime lacking: nothing.of_it cannot be imported (no module); install it"}
    said = findings(monkeypatch, Extra(), cpu=Toolchain(1.0, "AVX2", missing=missing))["runtime lacking"]
    assert (said.state, said.remedy) == ("optional", 'pip install "torch-autocompile[lacking]"')


def test_doctor_prints_brackets_and_fails_only_for_what_is_no_extra(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    extra = Finding(subject="x", state="optional", found="no x [y]", remedy='pip install "torch-autocompile[x]"')
    monkeypatch.setattr(checkup, "check_up", lambda: [extra])
    doctor()
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=2) == ["-", "x", f"no x [y]  {extra.remedy}".strip()]
    monkeypatch.setattr(checkup, "check_up", lambda: [extra, Finding(subject="z", state="missing", found="no z")])
    with pytest.raises(SystemExit) as ended:
        doctor()
    assert ended.value.code == 1
