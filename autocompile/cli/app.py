"""The command line. Each command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from typing import Any

import typer

from autocompile.cli import doctor, export, profile, run, schema, show, tune, verify, version

app = typer.Typer(
    name="autocompile",
    help="Finds the fastest correct way to run a PyTorch model, by measuring.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(version.version)
app.command("tune")(tune.tune)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("profile")(profile.profile)
app.command("show")(show.show)
app.command("verify")(verify.verify)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)


# What the parser raises. Recent versions of typer have their own copy of click, older ones import it.
_Misuse: Any = typer.BadParameter.__base__


def main() -> None:
    """Run a command. A fault that the user can fix is printed as one line on standard error, with exit status 2."""
    from autocompile.core.errors import AutocompileError, UsageError

    try:
        sys.exit(app(prog_name="autocompile", standalone_mode=False))
    except _Misuse as fault:
        if told := _told(fault):
            print(told, file=sys.stderr)
        sys.exit(2)
    except UsageError as fault:
        print(f"autocompile: {fault}", file=sys.stderr)
        sys.exit(2)
    except AutocompileError as fault:
        print(f"autocompile: {fault}", file=sys.stderr)
        sys.exit(1)


def _told(misuse: Any) -> str:
    """Return a wrong command line's fault and remedy in one line; without a command, the help."""
    said: str = misuse.format_message().strip().rstrip(".")
    if type(misuse).__name__ == "NoArgsIsHelpError":
        return said  # empty if rich has printed it
    command = misuse.ctx.command_path if misuse.ctx else " ".join(["autocompile", *_named_command()])
    takes_arguments = misuse.ctx is not None and any(one.name == "arguments" for one in misuse.ctx.command.params)
    if type(misuse).__name__ == "NoSuchOption" and takes_arguments:
        return f"{command}: {said}; put the script's own arguments after `--`, or see `{command} --help`"
    return f"{command}: {said}{' See' if said.endswith('?') else '; see'} `{command} --help`"


def _named_command() -> list[str]:
    """Return the command on the command line. The parser does not name it for every fault."""
    known = {one.name for one in app.registered_commands}
    return [word for word in sys.argv[1:2] if word in known]
