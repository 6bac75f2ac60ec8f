"""A program that OpenVINO runs, with its own kernels and threads, on a CPU."""
