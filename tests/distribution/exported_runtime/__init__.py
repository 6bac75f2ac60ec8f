"""A runtime of another distribution, as CONTRIBUTING.md says how to add one: torch.export's program, interpreted."""
