"""The examples as a user runs them."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from places import REPOSITORY

EMBEDDING = REPOSITORY / "examples" / "embedding.py"
STRATEGY = """
[search]
max_trials = 2
[dimensions]
backend = ["inductor"]
[screening]
limit_s = 1.0
[finals]
candidates = 1
processes = 1
limit_s = 1.0
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    directory = tmp_path_factory.mktemp("embedding")
    (directory / "strategy.toml").write_text(STRATEGY)
    subprocess.run(
        [
            sys.executable, "-m", "autocompile", "tune", EMBEDDING, "--budget", "4m", "--calls", "100000000",
            "--strategy", directory / "strategy.toml", "--output", directory / "rec", "--quiet",
        ],
        check=True,
        timeout=280,
        capture_output=True,
    )  # fmt: skip
    return directory / "rec"


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
    process = subprocess.Popen(
        [sys.executable, REPOSITORY / "examples" / "serve.py", artifact, "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
    )
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
        process.wait(timeout=20)


def test_the_embedding_example_loads_its_artifact_and_agrees_with_eager(artifact):
    ran = subprocess.run(
        [sys.executable, EMBEDDING, artifact], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "tier aot" in ran.stdout
    assert "smallest cosine similarity 0.99" in ran.stdout


def test_the_service_answers_over_http_and_reports_how(service):
    sentences = ["How do I reset my password?", "I forgot my login.", "The soup was cold."]
    vectors = asked(service, "/embed", {"sentences": sentences})["embeddings"]
    assert [len(vector) for vector in vectors] == [384] * 3
    one, other, third = vectors
    assert sum(a * b for a, b in zip(one, other, strict=True)) > sum(a * b for a, b in zip(one, third, strict=True))
    status = asked(service, "/status")
    assert status["tier"] == "aot"
    assert status["calls"] == {"aot": 3}
    assert status["fallbacks"] == []


def test_the_service_serves_what_the_program_was_not_made_for(service):
    many = ["One sentence."] * 40
    assert len(asked(service, "/embed", {"sentences": many})["embeddings"]) == 40
    status = asked(service, "/status")
    assert status["calls"]["eager"] == 1
    assert "has shape (40, " in status["fallbacks"][0]["reason"]


def test_a_bad_request_is_refused_and_the_service_lives_on(service):
    with pytest.raises(urllib.error.HTTPError, match="422"):
        asked(service, "/embed", {"sentences": []})
    assert asked(service, "/status")["tier"] == "aot"
