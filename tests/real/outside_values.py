"""Values that a model of `test_outside.py` imports when it is called."""

SHARE = 0.5
