"""Kill runs that share one study at random times, and check that no trial is lost, repeated or left unfinished.

    python studies/shared/kills.py record 20     # on SQLite and on a temporary PostgreSQL server: half an hour
    python studies/shared/kills.py > studies/shared/README.md

The runs use the real code, except that a trial only sleeps (`tests/torchfree/sharing.py`). Two runs start together.
One of them is killed with SIGKILL at a random time after its first trial has begun; then a third run joins. Every
second time, the killed run pretends to be on another machine, so that the others notice only its missing heartbeats.
`database`: instead of a run, the database server is killed and restarted while both runs continue. Needs
`pip install -e ".[dev]"`.
"""

import json
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "torchfree")]

import optuna  # noqa: E402
from together import Run, faults, restart  # noqa: E402  the same checks as in the tests

from autocompile.search.study.opening import close_storage, open_storage, sqlite_url  # noqa: E402

LIMIT_S = 1.5
RESULTS = HERE / "results" / "kills.jsonl"


def main() -> None:
    """Record, or print the README."""
    if sys.argv[1:2] == ["record"]:
        record(int(sys.argv[2]), sys.argv[3:] or ["SQLite", "PostgreSQL"])
    else:
        print_readme()


def record(times: int, storages: list[str]) -> None:
    """Record the repetitions that are not recorded yet, for these storages."""
    RESULTS.parent.mkdir(exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = [(json.loads(line)["storage"], json.loads(line)["killed"]) for line in lines]
    with tempfile.TemporaryDirectory(prefix="autocompile-kills-", ignore_cleanup_errors=True) as directory:
        server = postgresql(Path(directory))
        for storage, killed in (("SQLite", "run"), ("PostgreSQL", "run"), ("PostgreSQL", "database")):
            for number in range(times):
                if storage not in storages or known.count((storage, killed)) > number:
                    continue
                place = Path(directory) / f"{storage}-{killed}-{number}"
                place.mkdir()
                url = sqlite_url(place / "study.db") if storage == "SQLite" else emptied(server, f"{killed}{number}")
                came = of_database(place, url, server) if killed == "database" else of_run(place, url, number)
                with RESULTS.open("a") as stream:
                    stream.write(json.dumps({"storage": storage, "killed": killed, **came}) + "\n")
        server.cleanup()


def of_run(place: Path, url: str, number: int) -> dict[str, object]:
    """Kill one of two runs, and let a third run join."""
    alone = "elsewhere" if number % 2 else ""
    killed = Run(place, "killed", url, node=alone, limit_s=LIMIT_S)
    other = Run(place, "other", url, limit_s=LIMIT_S)
    killed.wait_for(1)
    time.sleep(random.uniform(0.0, 2.0))
    had_ended = killed.process.poll() is not None
    killed.kill()
    joins = Run(place, "joins", url, limit_s=LIMIT_S)
    return {"machine": alone or "same", "too_late": had_ended, **came_of(url, [killed, other, joins])}


def of_database(place: Path, url: str, server: object) -> dict[str, object]:
    """Kill and restart the database server while two runs use it."""
    runs = [Run(place, name, url, seconds=0.2, limit_s=LIMIT_S) for name in ("first", "second")]
    runs[0].wait_for(1)
    time.sleep(random.uniform(0.0, 2.0))
    had_ended = all(run.process.poll() is not None for run in runs)
    restart(server)
    return {"machine": "same", "too_late": had_ended, **came_of(url, runs)}


def came_of(url: str, runs: list[Run]) -> dict[str, object]:
    """Return the faults, the difference between the surviving runs' winners, and the unfinished trials of the study."""
    found = faults(runs)
    speedups = [run.won["speedup"] for run in runs if run.killed_at is None]
    storage = open_storage(url)
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    close_storage(storage)
    return {
        "faults": found,
        "apart": round(max(speedups) / min(speedups) - 1, 4),
        "unfinished": sum(not trial.state.is_finished() for trial in trials),
        "trials": runs[-1].won["trials"],
    }


def postgresql(directory: Path) -> object:
    """Start a temporary PostgreSQL server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver
    place = directory / "postgresql"
    place.mkdir()
    return pgserver.get_server(place, cleanup_mode="stop")


def emptied(server: object, name: str) -> str:
    """Create a new database and return its URL."""
    server.psql(f"create database {name}_{os.getpid()};")
    return server.get_uri(f"{name}_{os.getpid()}")


def print_readme() -> None:
    """Print a row for each storage and each kind of kill."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    print("# Runs that share a study, killed at random times\n")
    print("Generated by `kills.py`, which describes the method. Trials only sleep; everything else is the real code.\n")
    print("| storage | killed | times | ended before | another machine | lost or repeated | unfinished | winners |")
    print("|---|---|---|---|---|---|---|---|")
    for storage, killed in dict.fromkeys((line["storage"], line["killed"]) for line in lines):
        some = [line for line in lines if (line["storage"], line["killed"]) == (storage, killed)]
        print(
            f"| {storage} | {killed} | {len(some)} | {sum(line['too_late'] for line in some)} "
            f"| {sum(line['machine'] != 'same' for line in some)} | {sum(len(line['faults']) for line in some)} "
            f"| {sum(line['unfinished'] for line in some)} | at most {max(line['apart'] for line in some):.1%} apart |"
        )
    for line in lines:
        for fault in line["faults"]:
            print(f"\n- {line['storage']}, {line['killed']} killed: {fault}")


if __name__ == "__main__":
    main()
