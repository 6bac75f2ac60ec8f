"""The description of the GPUs by NVML; each field is read separately."""

from types import SimpleNamespace

import pytest

from autocompile import checkup, gpus
from autocompile.checkup import check_up, of_gpu
from autocompile.core.environment import Gpu
from autocompile.core.outcome import Toolchain
from autocompile.gpus import GpuState
from autocompile.host import Load


class FakeNvml:
    """Enough of pynvml for two GPUs; `refused` are the questions that it does not answer, and for which."""

    NVMLError = RuntimeError

    def __init__(self, refused=()):
        self.refused, self.was_shut_down = dict(refused), False

    def _answered(self, question, device, answer):
        if question in self.refused and self.refused[question] in (device, "all"):
            raise self.NVMLError(f"{question}: no permission")
        return answer

    def nvmlInit(self):  # noqa: N802  as NVML calls it
        self._answered("init", "all", None)

    def nvmlShutdown(self):  # noqa: N802
        self.was_shut_down = True

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self._answered("count", "all", 2)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self._answered("handle", index, index)

    def nvmlDeviceGetName(self, device):  # noqa: N802
        return self._answered("name", device, f"GPU {device}")

    def nvmlDeviceGetUUID(self, device):  # noqa: N802
        return self._answered("uuid", device, f"GPU-{device}{device}")

    def nvmlDeviceGetMemoryInfo(self, device):  # noqa: N802
        return self._answered("memory", device, SimpleNamespace(total=2**30))

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return self._answered("driver", "all", "580.1")


WHOLE = (Gpu("GPU 0", "GPU-00", 2**30), Gpu("GPU 1", "GPU-11", 2**30))


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ({}, (WHOLE, "580.1")),
        ({"init": "all"}, ((), "")),
        ({"count": "all"}, ((), "580.1")),
        ({"handle": 0}, (WHOLE[1:], "580.1")),
        ({"memory": 1}, ((WHOLE[0], Gpu("GPU 1", "GPU-11", None)), "580.1")),
        ({"uuid": 0, "driver": "all"}, ((Gpu("GPU 0", "", 2**30), WHOLE[1]), "")),
        ({"name": 1}, ((WHOLE[0], Gpu("a GPU whose name NVML does not report", "GPU-11", 2**30)), "580.1")),
    ],
)
def test_what_nvml_refuses_is_unknown_and_nothing_else(monkeypatch, refused, told):
    fake = FakeNvml(refused)
    monkeypatch.setattr(gpus, "pynvml", fake)
    assert gpus.nvidia_gpus() == told
    assert fake.was_shut_down == ("init" not in refused)


def test_a_gpu_of_unknown_memory_is_named_so():
    assert [str(gpu) for gpu in (WHOLE[0], Gpu("H200 MIG", "", None))] == [
        "GPU 0 (1 GiB)",
        "H200 MIG (memory unknown)",
    ]


MIB = 2**20
SHARED = 0
IDLE = SimpleNamespace(gpu=0, memory=0)


def memory(mib):
    return SimpleNamespace(total=mib * MIB)


class Recorded:
    """NVML with one GPU: its answers by the names of NVML's questions; it refuses to tell what is not among them."""

    NVMLError = RuntimeError

    def __init__(self, **answers):
        self.answers = answers

    def __getattr__(self, name):
        if name in ("nvmlInit", "nvmlShutdown"):
            return lambda: None
        question = name.removeprefix("nvmlDeviceGet").removeprefix("nvmlSystemGet")
        return lambda *about: self._answer(question, about)

    def _answer(self, question, about):
        if question == "MigDeviceHandleByIndex":
            answer = dict(enumerate(self.answers.get("slices", ()))).get(about[1])
        elif question == "HandleByIndex":
            answer = self.answers
        else:
            answer = {"Count": 1, "DriverVersion": "580.159.04", **(about[0] if about else {})}.get(question)
        if answer is None:
            raise self.NVMLError("Not Supported")
        return answer


# Values as in nvidia-smi. For a GPU divided into MIG slices, NVML refuses some values, as documented.
H100 = Recorded(
    Name="NVIDIA H100 80GB HBM3", UUID="GPU-6f3a0f5c", MemoryInfo=memory(81559), MigMode=[0, 0],
    UtilizationRates=IDLE, ComputeMode=SHARED, CurrentClocksEventReasons=0x1, DisplayActive=0,
)  # fmt: skip
H200 = Recorded(
    Name="NVIDIA H200", UUID="GPU-2b1c9d77", MemoryInfo=memory(143771), MigMode=[0, 0],
    UtilizationRates=IDLE, ComputeMode=SHARED, CurrentClocksEventReasons=0x4, DisplayActive=0,
)  # fmt: skip
CUT = Recorded(
    Name="NVIDIA H100 80GB HBM3", UUID="GPU-6f3a0f5c", MigMode=[1, 1], MaxMigDeviceCount=7, ComputeMode=SHARED
)
SLICE = {"Name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "UUID": "MIG-8c1e", "MemoryInfo": memory(9984)}
MIG = Recorded(**CUT.answers, slices=(None, SLICE))
# A desktop GPU: warm, without MIG, and in use by a display.
RTX = Recorded(
    Name="NVIDIA GeForce RTX 4090", UUID="GPU-aa10", MemoryInfo=memory(24564), ComputeMode=SHARED, DisplayActive=1,
    UtilizationRates=SimpleNamespace(gpu=37, memory=9), CurrentClocksEventReasons=0x20 | 0x4,
)  # fmt: skip


def states(monkeypatch, recorded):
    monkeypatch.setattr(gpus, "pynvml", recorded)
    return gpus.gpu_states()


def told_of(monkeypatch, recorded):
    return [(one.state, one.found) for state in states(monkeypatch, recorded) for one in of_gpu(state)]


@pytest.mark.parametrize(
    ("recorded", "name"), [(H100, "NVIDIA H100 80GB HBM3 (79.6 GiB)"), (H200, "NVIDIA H200 (140 GiB)")]
)
def test_doctor_finds_nothing_in_the_way_on_a_whole_gpu_of_ones_own(monkeypatch, recorded, name):
    assert told_of(monkeypatch, recorded) == []
    (gpu,), driver = gpus.nvidia_gpus()
    assert (str(gpu), driver) == (name, "580.159.04")


def test_doctor_names_the_slices_that_are_seen_and_what_is_not_told_of_them(monkeypatch):
    (state,) = states(monkeypatch, MIG)
    assert (state.gpu.memory_bytes, state.busy_share, state.throttled) == (None, None, "")
    ((good, found),) = told_of(monkeypatch, MIG)
    assert good == "good"
    assert "slices; here: NVIDIA H100 80GB HBM3 MIG 1g.10gb (9.75 GiB). NVML reports neither" in found


def test_a_gpu_that_is_cut_into_slices_of_which_none_is_seen_is_no_gpu(monkeypatch):
    assert told_of(monkeypatch, CUT) == [
        ("missing", "NVIDIA H100 80GB HBM3 is in MIG mode, and no slice is visible here")
    ]


def test_doctor_tells_what_disturbs_a_gpu_with_a_display(monkeypatch):
    assert [(state, found.split(",")[0]) for state, found in told_of(monkeypatch, RTX)] == [
        ("poor", "NVIDIA GeForce RTX 4090 drives a display"),
        ("poor", "NVIDIA GeForce RTX 4090 is 37% busy"),
        ("poor", "the clocks of NVIDIA GeForce RTX 4090 are lowered (heat)"),
    ]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (3, ("poor", "only one process at a time may use NVIDIA H200: a trial fails while another process uses it")),
        (2, ("missing", "the compute mode of NVIDIA H200 prohibits all processes")),
    ],
)
def test_doctor_tells_who_may_compute_on_a_gpu(monkeypatch, mode, told):
    assert told_of(monkeypatch, Recorded(**{**H200.answers, "ComputeMode": mode})) == [told]


@pytest.mark.parametrize("recorded", [H100, H200, MIG, RTX], ids=["H100", "H200", "MIG", "display"])
def test_doctor_goes_through_on_every_recorded_gpu(monkeypatch, recorded):
    assert states(monkeypatch, recorded)
    monkeypatch.setattr(checkup, "current_load", lambda _seconds: Load(0.0, 0.0, 0.0))
    monkeypatch.setattr(checkup, "LocalRunner", Unlaunched)
    said = {one.subject: one for one in check_up() if one.state == "good"}
    assert "driver 580.159.04" in next(one.found for one in check_up() if "driver" in one.found)
    assert said["torch.compile on cuda"].found.startswith("works for")


@pytest.mark.parametrize("shows", [True, False])
def test_doctor_tries_a_gpu_of_which_nvml_tells_nothing(monkeypatch, tmp_path, shows):
    """As in a container that was given CUDA's library alone."""
    monkeypatch.setattr(gpus, "pynvml", FakeNvml({"init": "all"}))
    monkeypatch.setattr(gpus, "_DEVICE_FILES", (tmp_path / "none", tmp_path if shows else tmp_path / "neither"))
    monkeypatch.setattr(checkup, "current_load", lambda _seconds: Load(0.0, 0.0, 0.0))
    monkeypatch.setattr(checkup, "LocalRunner", Unlaunched)
    found = {one.subject: one for one in check_up()}
    assert ("torch.compile on cuda" in found) == shows
    assert found["GPU"].state == ("poor" if shows else "good")
    assert ("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in found["GPU"].remedy) == shows


class Unlaunched:
    """A runner whose children find that all works."""

    def __init__(self, *_where):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_fault):
        pass

    def submit(self, *_task, **_how):
        return SimpleNamespace(
            answer=lambda: Toolchain(1.0, "it"), is_done=lambda: True, span_s=(0.0, 1.0), pauses_s=()
        )


def seen(name, *slices):
    cut = tuple(Gpu(f"{name} MIG 1g.5gb", f"MIG-{name}-{each}", None) for each in slices)
    return GpuState(
        Gpu(name, f"GPU-{name}", 1), bool(cut), cut, has_display=False, busy_share=0.0, throttled="", open_to=""
    )


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ("A", "B MIG 1g.5gb", "B MIG 1g.5gb")),
        ("", ()),
        ("0", ("A",)),
        ("1, 0", ("B MIG 1g.5gb", "B MIG 1g.5gb", "A")),
        ("GPU-A", ("A",)),
        ("MIG-B-2", ("B MIG 1g.5gb",)),
        ("0,7,1", ("A",)),
        ("-1", ()),
    ],
)
def test_what_a_process_may_use_is_named_as_cuda_shows_it(visible, names):
    assert gpus.visible_names([seen("A"), seen("B", "1", "2")], visible) == names
