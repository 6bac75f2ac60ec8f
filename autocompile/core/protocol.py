"""How a parent and a child process communicate: files in the job's directory, and a pipe for events."""

from __future__ import annotations

# The parent writes the job. The child writes its reply, and its output goes into the log.
JOB_FILE, REPLY_FILE, LOG_FILE = "job.json", "reply.json", "log.txt"
# The output of a watched script, in the directory of its workload.
SCRIPT_LOG = "script.log"

# The environment variable with the file descriptor of the pipe, which carries one line of JSON per event.
EVENTS_VARIABLE = "AUTOCOMPILE_EVENTS_FD"
