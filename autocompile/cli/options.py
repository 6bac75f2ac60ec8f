"""The options of `autocompile tune`, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Script = Annotated[
    Path,
    Argument(
        help="A script that defines `model` and `inputs` (to tune training, also `loss` and `optimizer`), or "
        "`workload()`. Any other script is run as it is, and watched for the calls of its model."
    ),
]
Arguments = Annotated[list[str] | None, Argument(help="Arguments of the script, after `--`.", show_default=False)]
Module = Annotated[str, Option(help="Watch the script, and tune this module: the name of its class or of a variable.")]
Function = Annotated[
    str,
    Option(
        help="Watch the script, and tune the calls of this function: pkg.mod:name, or name if the script defines it."
    ),
]
AsModule = Annotated[bool, Option("-m", help="SCRIPT is the name of a module, as for `python -m`. It is watched.")]
ShowOutput = Annotated[bool, Option("--show-output", help="Copy the output of a watched script to standard error.")]
Watch = Annotated[str, Option(help="How long a script that defines no workload is watched.")]
WatchCalls = Annotated[int, Option(help="Stop watching earlier, after this many calls of one module.")]
Budget = Annotated[str, Option(help="Wall time for the whole run: 90s, 30m, 1h30m.")]
Output = Annotated[Path, Option(help="Directory for the recommendation and the study. A killed run resumes from it.")]
Preset = Annotated[str, Option(help="quick, balanced, thorough, or a TOML file.")]
Calls = Annotated[int | None, Option(help="Amortize start-up over this many calls of a process.")]
Horizon = Annotated[str | None, Option(help="Or over the calls that eager makes in this time (default: 1h).")]
Deploy = Annotated[str, Option(help="How production starts: artifact (loads the packed artifact) or jit (compiles).")]
Processes = Annotated[int, Option(help="How many processes load the artifact, and share the cost of compiling it.")]
Objective = Annotated[str, Option(help="time (amortized), latency or throughput.")]
Percentile = Annotated[int | None, Option(help="For the latency objective and --max-latency: 50, 90, 95, 99.")]
MaxLatency = Annotated[str | None, Option(help="Longest latency of a call, with a unit: 5ms.")]
MaxStartup = Annotated[str | None, Option(help="Longest start-up of a process, with a unit: 10s.")]
MaxMemory = Annotated[str | None, Option(help="Largest peak memory: 2GiB.")]
Batch = Annotated[str, Option(help="Samples per call: fixed, tune, or the sizes to try: 1,8,32.")]
Tolerance = Annotated[float | None, Option(help="Largest relative error of an output (default: by precision).")]
Seed = Annotated[int, Option(help="Seed of the sampler and of the random inputs.")]
Storage = Annotated[
    str | None,
    Option(help="Optuna storage URL for the study. Runs may share it (default: SQLite in the output directory)."),
]
Workers = Annotated[
    str,
    Option(
        help="How many candidates are compiled in parallel (they are measured one at a time); or where else to try "
        "candidates: gpu (each GPU), dask://host:8786 or ray://host:10001 (a cluster)."
    ),
]
Json = Annotated[bool, Option("--json", help="Print the recommendation as JSON.")]
Quiet = Annotated[bool, Option("--quiet", help="Show no progress.")]
