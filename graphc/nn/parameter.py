"""torch.nn.parameter."""

from ..frontend.tensor import Parameter as Parameter
