"""torch.backends.openmp: no OpenMP: graphc has threads of its own."""


def is_available() -> bool:
    """False."""
    return False
