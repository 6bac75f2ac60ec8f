"""A run on a dask cluster: a scheduler and a worker, both local processes."""

import json

import pytest
from clusters import PATIENCE_S, Cluster, check_a_kill, check_a_run, wait_until
from distributed import Client


class Dask(Cluster):
    engine, there = "dask", "(tcp://127.0.0.1:"

    def __init__(self, directory):
        super().__init__(directory)
        self.address = ""

    def ready(self):
        if not self.is_running("scheduler"):
            self.end("worker")
            told = self.directory / "scheduler.json"
            told.unlink(missing_ok=True)
            self.start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", told)
            wait_until(told.exists)
            self.address = json.loads(told.read_text())["address"]
        if not self.is_running("worker"):
            options = ("--nthreads", 1, "--no-nanny", "--local-directory", self.directory)
            self.start_dask("worker", self.address, *options)
        with Client(self.address, timeout=PATIENCE_S) as client:
            client.wait_for_workers(1, timeout=PATIENCE_S)
        return self.address.removeprefix("tcp://")

    def start_dask(self, role, *arguments):
        self.start(role, f"distributed.cli.dask_{role}", *arguments, "--no-dashboard")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Dask(tmp_path_factory.mktemp("dask"))
    yield made
    made.end("worker")
    made.end("scheduler")


def test_candidates_are_packed_and_measured_there_and_the_winner_is_served(cluster, tmp_path):
    check_a_run(cluster, tmp_path)


@pytest.mark.parametrize(("victim", "doing"), [("worker", "compiling"), ("scheduler", "measuring")])
def test_a_study_goes_on_when_one_of_the_cluster_is_killed_at_work(cluster, tmp_path, victim, doing, caplog):
    check_a_kill(cluster, tmp_path, victim, doing)
    assert not [record for record in caplog.records if record.exc_info], "dask logs a traceback"
