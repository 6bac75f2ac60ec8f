"""A run on a Ray cluster of one node, whose processes are local."""

import shutil
import socket
import tempfile
from pathlib import Path

import psutil
import pytest
from clusters import PATIENCE_S, Cluster, check_a_kill, check_a_run, wait_until

from autocompile.core.errors import InvalidValue
from autocompile.runner.cluster.ray import RayEngine, has_token

# Ray creates its sockets here, and their paths must be short.
_SCRATCH = "/tmp"


class Ray(Cluster):
    engine, there = "ray", "(node "

    def __init__(self, directory):
        super().__init__(directory)
        self.port = free_port()
        self.own_port = 0  # of the head, which other nodes join; 0 is any that is free

    def ready(self):
        if not self.is_running("head"):
            self.end_all()
            self.port = free_port()
            options = ["--head", "--port", self.own_port, "--ray-client-server-port", self.port]
            options += ["--num-cpus", 1, "--num-gpus", 0, "--object-store-memory", 80 << 20, "--temp-dir"]
            options += [self.directory, "--include-dashboard=false", "--disable-usage-stats", "--block"]
            self.start("head", "ray.scripts.scripts", "start", *options)
            wait_until(self.answers)
        return f"127.0.0.1:{self.port}"

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S).close()
        except OSError:
            return False
        return True

    def is_of_it(self, process):
        """Ray's own workers come and go as it likes."""
        try:
            return self.is_beneath(process) and any("autocompile" in word for word in process.cmdline())
        except psutil.Error:
            return False

    def kill_at_work(self, role):
        """All of it: what holds the agent is no child of the head's."""
        super().kill_at_work(role)
        self.end_all()

    def end_all(self):
        """The head, and all that it has started."""
        self.end("head")
        for process in psutil.process_iter():
            if self.is_beneath(process):
                process.kill()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_MODE", "disabled")  # else it depends on whether this user has a token
        patched.setenv("RAY_CLIENT_RECONNECT_GRACE_PERIOD", "2")  # by default half a minute
        patched.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # else Ray's client server crashes in gRPC as it forks
        yield from own_cluster()


def own_cluster():
    made = Ray(Path(tempfile.mkdtemp(prefix="ray", dir=_SCRATCH)))
    yield made
    made.end_all()
    shutil.rmtree(made.directory, ignore_errors=True)


def test_candidates_are_packed_and_measured_there_and_the_winner_is_served(cluster, tmp_path):
    check_a_run(cluster, tmp_path)


def test_a_study_goes_on_when_the_cluster_is_killed_at_work(cluster, tmp_path):
    check_a_kill(cluster, tmp_path, "head", "measuring")


def test_where_no_cluster_answers_one_line_says_so():
    with pytest.raises(InvalidValue, match=r"no Ray cluster answers at 127\.0\.0\.1:") as told:
        RayEngine(f"127.0.0.1:{free_port()}")
    assert "\n" not in str(told.value)


def test_a_token_is_found_where_ray_looks_for_one(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not has_token()
    for name, value in (("RAY_AUTH_TOKEN", "secret"), ("RAY_AUTH_TOKEN_PATH", str(tmp_path / "own"))):
        (tmp_path / "own").write_text("secret")
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert has_token()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert has_token()
