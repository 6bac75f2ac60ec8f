"""What NVML tells of the GPUs, each field by itself."""

from types import SimpleNamespace

import pytest

from autocompile import host
from autocompile.core.environment import Gpu


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
        ({"name": 1}, ((WHOLE[0], Gpu("a GPU whose name NVML does not tell", "GPU-11", 2**30)), "580.1")),
    ],
)
def test_what_nvml_refuses_is_unknown_and_nothing_else(monkeypatch, refused, told):
    fake = FakeNvml(refused)
    monkeypatch.setattr(host, "pynvml", fake)
    assert host.nvidia_gpus() == told
    assert fake.was_shut_down == ("init" not in refused)


def test_a_gpu_of_unknown_memory_is_named_so():
    assert [str(gpu) for gpu in (WHOLE[0], Gpu("H200 MIG", "", None))] == [
        "GPU 0 (1 GiB)",
        "H200 MIG (memory not told)",
    ]
