"""torch.utils.model_zoo: torch.hub's older name."""

from ..hub import load_state_dict_from_url as load_state_dict_from_url
from ..hub import load_state_dict_from_url as load_url
from ..progress import progress as tqdm

__all__ = ["load_state_dict_from_url", "load_url", "tqdm"]
