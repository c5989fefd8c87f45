"""torch.utils.data._utils.collate."""

from ..collate import collate as collate
from ..collate import collate_tensor_fn as collate_tensor_fn
from ..collate import default_collate as default_collate
from ..collate import default_collate_fn_map as default_collate_fn_map
from ..collate import default_convert as default_convert
from ..collate import np_str_obj_array_pattern as np_str_obj_array_pattern
