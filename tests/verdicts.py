"""What a verdict may say on a machine that is not quiet."""


def is_undecided(told):
    """Whether this reason or report says that noise may have decided it."""
    words = " ".join(told.split())
    return "other programs used this host" in words or "too noisy for a verdict" in words
