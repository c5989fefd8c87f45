"""torch.nn.utils._per_sample_grad: gradients by sample through expanded weights."""

from __future__ import annotations

from ... import unsupported

call_for_per_sample_grads = unsupported.function(
    "torch.nn.utils._per_sample_grad.call_for_per_sample_grads",
    "torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0)) gives gradients by sample",
)
