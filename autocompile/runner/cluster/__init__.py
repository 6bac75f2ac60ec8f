"""Trials on other machines and on other GPUs of this machine: an agent process runs on each of them.

"Home" is the process, and the machine, that runs the search.
"""
