"""Files that torch and related libraries write with native code: also redirected while watching, and read back."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autocompile.workload.watching.files import writes_kept_in

IMPORTS_IT_ONLY_THEN = """
from pathlib import Path
from autocompile.workload.watching.files import writes_kept_in
with writes_kept_in(Path("../scratch")):
    import torch
    torch.save(torch.ones(3), "new.pt")
    torch.save(torch.load("old.pt") + 1, "old.pt")
    assert torch.load("new.pt").tolist() == torch.load("old.pt", mmap=True).tolist() == [1, 1, 1]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    directory = tmp_path / "project"
    directory.mkdir()
    torch.save(torch.zeros(3), directory / "old.pt")
    monkeypatch.chdir(directory)
    before = (directory / "old.pt").read_bytes()
    yield directory
    assert os.listdir(directory) == ["old.pt"]
    assert (directory / "old.pt").read_bytes() == before


@pytest.fixture
def kept(project, tmp_path):
    writer = torch._C.PyTorchFileWriter
    with writes_kept_in(tmp_path / "scratch") as kept:
        yield kept
    assert torch._C.PyTorchFileWriter is writer
    assert "from_file" not in vars(torch.UntypedStorage)


def test_checkpoints(kept):
    for path in ("new.pt", Path("old.pt"), os.path.abspath("third.pt")):
        torch.save({"w": torch.ones(3)}, path)
        assert torch.load(path)["w"].tolist() == torch.load(path, mmap=True)["w"].tolist() == [1, 1, 1]
        torch.save([1], path, _use_new_zipfile_serialization=False)
        assert torch.load(path) == [1]
    assert {path.name for path in kept.written()} == {"new.pt", "old.pt", "third.pt"}
    with pytest.raises((OSError, RuntimeError), match="nowhere"):
        torch.save([1], "nowhere/x.pt")


def test_what_the_user_has_is_mapped_where_it_is(kept):
    assert torch.load("old.pt", mmap=True).tolist() == [0, 0, 0]
    assert kept.written() == ()


def test_mapped_memory_and_traces_and_programs(kept):
    torch.from_file("map", shared=True, size=2).fill_(3)
    assert torch.from_file("map", shared=False, size=2).tolist() == [3, 3]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2) + 1
    profile.export_chrome_trace("trace.json")
    assert Path("trace.json").read_text().lstrip().startswith("{")
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), "program.pt2")
    assert torch.export.load("program.pt2").module()(torch.ones(1, 2)).shape == (1, 2)


class Notes(Dataset):
    """Its workers leave a file for each item that they load."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        Path(f"item{index}").write_text(str(index))
        return index


def test_workers_write_beside_the_script(kept):
    assert sum(DataLoader(Notes(), num_workers=2)).item() == 6
    assert [Path(f"item{index}").read_text() for index in range(4)] == ["0", "1", "2", "3"]


@pytest.mark.skipif(not importlib.util.find_spec("safetensors"), reason="safetensors is not installed")
def test_safetensors(kept):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    save_file({"w": torch.ones(2)}, "w.safetensors")
    assert load_file("w.safetensors")["w"].tolist() == [1, 1]
    with safe_open("w.safetensors", framework="pt") as file:
        assert list(file.keys()) == ["w"]


@pytest.mark.skipif(not importlib.util.find_spec("tokenizers"), reason="tokenizers is not installed")
def test_tokenizers(kept):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save("tokenizer.json")
    assert Tokenizer.from_file("tokenizer.json").get_vocab() == {"a": 0}
    os.mkdir("vocabulary")
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).model.save("vocabulary")
    assert os.listdir("vocabulary") == ["vocab.json"]


def test_torch_may_be_imported_by_the_script(project):
    subprocess.run([sys.executable, "-c", IMPORTS_IT_ONLY_THEN], check=True)
