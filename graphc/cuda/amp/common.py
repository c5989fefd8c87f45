"""What torch.cuda.amp asks about the machine."""

from ..available import is_available


def amp_definitely_not_available() -> bool:
    """True without a GPU."""
    return not is_available()
