"""Tune the calls of one function of a script."""
