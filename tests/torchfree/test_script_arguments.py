"""The arguments of a script, on every command that runs one."""

import sys

import pytest
from test_search import run

from autocompile import tuning
from autocompile.artifact.directory import write_recommendation
from autocompile.cli import app as cli
from autocompile.core.errors import InvalidWorkload
from autocompile.workload.capture.place import ScriptPlace

GIVEN = ("--epochs", "3", "--quiet", "data set")


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "SCRIPT", "--budget", "5s", "--output", "OUT"),
        ("profile", "SCRIPT"),
        ("verify", "REC", "SCRIPT"),
        ("export", "REC", "SCRIPT", "OUT", "--to", "pt2"),
    ],
    ids=lambda command: command[0],
)
def test_what_follows_two_dashes_is_the_scripts(command, tmp_path, monkeypatch, capsys):
    script, recommendation, taken = tmp_path / "net.py", tmp_path / "rec", []
    script.write_text("")
    document, runner = run()
    write_recommendation(recommendation, document, runner.directory, "report")
    paths = {"SCRIPT": str(script), "REC": str(recommendation), "OUT": str(tmp_path / "out")}

    def source(path, arguments=(), **_options):
        taken.append((path, tuple(arguments)))
        raise InvalidWorkload("enough is seen")

    monkeypatch.setattr(tuning, "from_script", source)
    words = [paths.get(word, word) for word in command]
    monkeypatch.setattr(sys, "argv", ["autocompile", *words, "--quiet", "--", *GIVEN])
    with pytest.raises(SystemExit):
        cli.main()
    assert taken == [(ScriptPlace(script), GIVEN)], capsys.readouterr().err
