"""Temporary files: a run leaves nothing behind, and the next run removes the files of a killed one."""

import os
import subprocess
import sys
import time

import pytest

PROFILE = [sys.executable, "-m", "autocompile", "profile", "script.py", "--quiet"]
CAPTURED = (
    "import tempfile, torch\ntempfile.mkdtemp()\nmodel, inputs = torch.nn.Linear(64, 8).eval(), torch.randn(16, 64)\n"
)


@pytest.fixture
def place(tmp_path):
    """A directory with a script, and the environment of a process that has an empty temporary directory in it."""
    (tmp_path / "script.py").write_text(CAPTURED)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return tmp_path, temporary, {**os.environ, "TMPDIR": str(temporary)}


def test_a_run_leaves_nothing_and_the_next_removes_what_a_killed_one_left(place):
    directory, temporary, environment = place
    killed = subprocess.Popen(PROFILE, cwd=directory, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(temporary.glob("*/jobs/0002")) and time.monotonic() < deadline:  # past the script, in the profile
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    assert list(temporary.iterdir())
    ran = subprocess.run(PROFILE, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert list(temporary.iterdir()) == []
