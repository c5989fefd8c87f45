"""torch.backends.mkldnn: flags of oneDNN, which graphc does not use."""

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """False."""
    return False


def is_acl_available() -> bool:
    """False."""
    return False
