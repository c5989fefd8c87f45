"""torch.utils: so far, data."""

from . import data as data
