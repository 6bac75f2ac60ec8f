"""Timing: paired blocks, confidence intervals, and disturbances."""
