"""OpenVINO, which runs programs on a CPU with its own kernels and threads."""
