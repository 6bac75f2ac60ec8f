"""How a workload is come by: scripts, loaders, streams of inputs."""
