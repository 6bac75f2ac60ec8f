"""Floor 3: the ways to run a model. Trials and production build through here."""
