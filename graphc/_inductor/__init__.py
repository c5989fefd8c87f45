"""torch._inductor: flags alone."""

from . import config as config
