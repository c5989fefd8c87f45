"""torch.utils.data._utils: where older code looks for the collate functions."""

from . import collate as collate
