"""torch.utils.data._utils.collate."""

from ..collate import default_collate as default_collate
from ..collate import default_convert as default_convert
