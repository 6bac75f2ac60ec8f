"""The command line. Each command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys

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


def main() -> None:
    """Run a command. A fault that the user can fix is printed as one line on standard error, with exit status 2."""
    from autocompile.core.errors import AutocompileError, UsageError

    try:
        app()
    except UsageError as fault:
        print(f"autocompile: {fault}", file=sys.stderr)
        sys.exit(2)
    except AutocompileError as fault:
        print(f"autocompile: {fault}", file=sys.stderr)
        sys.exit(1)
