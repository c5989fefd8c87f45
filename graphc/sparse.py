"""torch.sparse: sparse tensors, which graphc does not have."""

from __future__ import annotations

from . import unsupported

_CURE = "use dense tensors"

globals().update(unsupported.table("torch.sparse", _CURE, functions="""
    mm addmm sum softmax log_softmax sampled_addmm spdiags to_sparse_semi_structured
""", kinds="""
    FloatTensor DoubleTensor LongTensor IntTensor SparseSemiStructuredTensor
"""))
globals().update(unsupported.table("torch", _CURE, functions="""
    sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_compressed_tensor
"""))
