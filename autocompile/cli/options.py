"""The options of `autocompile tune`, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Script = Annotated[
    Path,
    Argument(
        help="Defines `model` and `inputs` (to tune training, `loss` and `optimizer`, too), or `workload()`; any other "
        "is run and watched for the calls of its model."
    ),
]
Arguments = Annotated[list[str] | None, Argument(help="The script's own arguments, after `--`.", show_default=False)]
Module = Annotated[
    str, Option(help="Watch the script, and tune this of its modules: the name of a class, or of a variable.")
]
Function = Annotated[
    str,
    Option(
        help="Watch the script, and tune the calls of this function: pkg.mod:name, or name for one of the script's."
    ),
]
AsModule = Annotated[bool, Option("-m", help="SCRIPT is the name of a module, as for `python -m`; it is watched.")]
ShowOutput = Annotated[bool, Option("--show-output", help="Show on standard error what a watched script prints.")]
Watch = Annotated[str, Option(help="Watch a script that defines no workload for so long.")]
WatchCalls = Annotated[int, Option(help="Or for so many calls of a module.")]
Budget = Annotated[str, Option(help="Wall time for all of it: 90s, 30m, 1h30m.")]
Output = Annotated[Path, Option(help="Keeps the recommendation and the study; a killed run goes on.")]
Preset = Annotated[str, Option(help="quick, balanced, thorough, or a TOML file.")]
Calls = Annotated[int | None, Option(help="Amortize start-up over so many calls of a process.")]
Horizon = Annotated[str | None, Option(help="Or over as many as eager makes in this time (default: 1h).")]
Deploy = Annotated[str, Option(help="How production starts: artifact (loads what was packed) or jit (compiles).")]
Processes = Annotated[int, Option(help="So many processes load the artifact, and share what packing it took.")]
Objective = Annotated[str, Option(help="time (amortized), latency or throughput.")]
Percentile = Annotated[int | None, Option(help="Of the latency objective and --max-latency: 50, 90, 95, 99.")]
MaxLatency = Annotated[str | None, Option(help="A call may take no longer: 5ms; with its unit.")]
MaxStartup = Annotated[str | None, Option(help="A start may take no longer: 10s; with its unit.")]
MaxMemory = Annotated[str | None, Option(help="The peak may be no higher: 2GiB.")]
Batch = Annotated[str, Option(help="Samples in a call: fixed, tune, or sizes to try: 1,8,32.")]
Tolerance = Annotated[float | None, Option(help="Largest relative error of an output (default: by precision).")]
Seed = Annotated[int, Option(help="For the sampler and the random inputs.")]
Storage = Annotated[
    str | None,
    Option(help="Optuna storage URL for the study, which runs may share (default: SQLite in the output directory)."),
]
Workers = Annotated[
    str,
    Option(
        help="Compile so many candidates side by side, measured one by one; or where else to try some: gpu (each GPU), "
        "dask://host:8786 or ray://host:10001 (a cluster)."
    ),
]
Json = Annotated[bool, Option("--json", help="Print the recommendation as JSON.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress.")]
