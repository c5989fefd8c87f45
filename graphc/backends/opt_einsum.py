"""torch.backends.opt_einsum: flags of opt_einsum; graphc orders an einsum from left to right."""

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False."""
    return False
