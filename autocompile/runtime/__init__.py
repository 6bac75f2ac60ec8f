"""The runtimes: all ways to run a model. Trials and production both build models through this package."""
