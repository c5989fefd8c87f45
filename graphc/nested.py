"""torch.nested: nested tensors, which graphc does not have."""

from __future__ import annotations

from . import unsupported

_CURE = "pad with nn.utils.rnn.pad_sequence() and pass a mask"

globals().update(unsupported.table("torch.nested", _CURE, functions="""
    nested_tensor as_nested_tensor to_padded_tensor nested_tensor_from_jagged narrow
"""))
