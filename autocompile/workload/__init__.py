"""Floor 2: the user's model and inputs: capture, spool, reference, build. Torch is imported here."""
