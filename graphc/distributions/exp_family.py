"""torch.distributions.ExponentialFamily."""

from .distribution import Distribution


class ExponentialFamily(Distribution):
    """Distributions whose density is exp(natural parameters . statistics - log normaliser)."""
