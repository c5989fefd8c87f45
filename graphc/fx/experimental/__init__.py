"""torch.fx.experimental: the questions that libraries ask of PyTorch's tracers."""

from . import proxy_tensor as proxy_tensor
