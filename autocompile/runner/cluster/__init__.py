"""Trials on other machines, and on other GPUs of this one: an agent on each, whoever brings it there."""
