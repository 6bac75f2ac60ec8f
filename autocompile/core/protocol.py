"""How a parent and its child find one another's words: files in a job's directory, and a pipe for events."""

from __future__ import annotations

# The parent leaves the job; the child leaves its reply, and whatever it prints goes into the log.
JOB_FILE, REPLY_FILE, LOG_FILE = "job.json", "reply.json", "log.txt"
# What a watched script printed, beside its workload.
SCRIPT_LOG = "script.log"

# The environment variable with the descriptor of the pipe: a JSON line for each event.
EVENTS_VARIABLE = "AUTOCOMPILE_EVENTS_FD"
