"""The examples as a user runs them."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from laboratory import EAGER, Laboratory, reply_to
from places import REPOSITORY

from autocompile.core.job import CaptureTask, Limits
from autocompile.core.profile import Profile
from autocompile.core.workload import Workload
from autocompile.runtime.inductor.settings import compiled

EMBEDDING = REPOSITORY / "examples" / "embedding.py"
TRAINING = REPOSITORY / "examples" / "training.py"


@pytest.fixture(scope="module")
def artifact(runner, tmp_path_factory):
    """As `tune` packs it, whatever would have won on this machine."""
    directory = tmp_path_factory.mktemp("embedding")
    workload = reply_to(runner, CaptureTask(str(EMBEDDING), str(directory / "workload")), Limits(60.0), cache="capture")
    assert isinstance(workload, Workload), workload
    laboratory = Laboratory(runner, directory)
    laboratory.workload, laboratory.reference = workload, str(directory / "reference.pt")
    assert isinstance(laboratory.profile(), Profile)
    packed = laboratory.pack(compiled())
    assert isinstance(packed, Path), packed
    return packed


def asked(port, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def service(artifact):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, REPOSITORY / "examples" / "serve.py", artifact, "--port", str(port)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(300):
                assert process.poll() is None
                try:
                    asked(port, "/status")
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            yield port
        finally:
            process.terminate()


def test_the_embedding_example_loads_its_artifact_and_agrees_with_eager(artifact):
    ran = subprocess.run(
        [sys.executable, EMBEDDING, artifact], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "served by aot" in ran.stdout
    assert "agrees with eager: smallest cosine similarity" in ran.stdout


def test_the_service_answers_over_http_and_reports_how(service):
    sentences = ["How do I reset my password?", "I forgot my login.", "The soup was cold."]
    vectors = asked(service, "/embed", {"sentences": sentences})["embeddings"]
    assert [len(vector) for vector in vectors] == [384] * 3
    one, other, third = vectors
    assert sum(a * b for a, b in zip(one, other, strict=True)) > sum(a * b for a, b in zip(one, third, strict=True))
    status = asked(service, "/status")
    assert status["runtime"] == "aot"
    assert status["calls"] == {"aot": 3}
    assert status["fallbacks"] == []


def test_the_service_serves_what_the_program_was_not_made_for(service):
    many = ["One sentence."] * 40
    assert len(asked(service, "/embed", {"sentences": many})["embeddings"]) == 40
    status = asked(service, "/status")
    assert status["calls"]["eager"] == 1
    assert "has shape (40, " in status["fallbacks"][0]["reason"]


def test_a_bad_request_is_refused_and_the_service_lives_on(service):
    with pytest.raises(urllib.error.HTTPError, match="422") as refused:
        asked(service, "/embed", {"sentences": []})
    refused.value.close()
    assert asked(service, "/status")["runtime"] == "aot"


def test_the_training_example_is_tuned_and_learns_as_recommended(tmp_path):
    recommendation, strategy = tmp_path / "rec", tmp_path / "few.toml"
    strategy.write_text(EAGER)
    tuning = [
        sys.executable,
        "-m",
        "autocompile",
        "tune",
        TRAINING,
        "--budget",
        "400s",
        "--strategy",
        strategy,
        "--quiet",
    ]
    tuned = subprocess.run([*tuning, "--output", recommendation], check=False, capture_output=True, text=True)
    assert tuned.returncode == 0, tuned.stderr
    assert "per step" in tuned.stdout  # also where the host is too noisy for a verdict
    trained = subprocess.run([sys.executable, TRAINING, recommendation], check=False, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    first, last = re.search(r"loss (\S+) at first, (\S+) after", trained.stdout).groups()
    assert float(last) < float(first) - 1  # from even chances of 256 characters
    assert "fallbacks=()" in trained.stdout
