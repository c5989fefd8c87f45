"""torch.backends.mps: no Apple GPU."""


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def is_macos13_or_newer() -> bool:
    """False."""
    return False
