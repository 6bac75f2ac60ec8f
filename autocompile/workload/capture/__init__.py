"""Obtain a workload: from scripts, loaders and streams of inputs."""
