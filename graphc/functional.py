"""torch.functional: an older place of some of torch's functions."""

from .frontend.functions import NAMES as _NAMES

_NAMES_HERE = """
    atleast_1d atleast_2d atleast_3d align_tensors broadcast_shapes broadcast_tensors block_diag
    cartesian_prod cdist chain_matmul einsum lu meshgrid norm split stft tensordot unique
    unique_consecutive unravel_index
""".split()
globals().update({name: _NAMES[name] for name in _NAMES_HERE if name in _NAMES})
