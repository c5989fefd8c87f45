"""Small blocks that torchvision's models and others' are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphc
from graphc import Tensor, nn

Norm = Callable[..., nn.Module] | None


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation by fixed statistics and a fixed affine map: all four are buffers."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, fill in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0),
                           ("running_var", 1.0)):
            self.register_buffer(name, graphc.full((num_features,), fill))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # checkpoints of nn.BatchNorm2d load, too
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to the same."""
        weight, bias, mean, var = (
            b.reshape(1, -1, 1, 1)
            for b in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        scale = weight * (var + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class Conv2dNormActivation(nn.Sequential):
    """Convolution, normalisation, activation; padding keeps the size at stride 1."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1, padding: int | tuple[int, ...] | str | None = None,
        groups: int = 1, norm_layer: Norm = nn.BatchNorm2d, activation_layer: Norm = nn.ReLU,
        dilation: int | tuple[int, int] = 1, inplace: bool | None = True, bias: bool | None = None,
    ) -> None:
        if padding is None:
            sizes = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * 2
            steps = dilation if isinstance(dilation, tuple) else (dilation,) * 2
            padding = tuple((k - 1) // 2 * d for k, d in zip(sizes, steps, strict=True))
        layers: list[nn.Module] = [
            nn.Conv2d(
                in_channels, out_channels, kernel_size, stride, padding, dilation=dilation,
                groups=groups, bias=norm_layer is None if bias is None else bias,
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Channel gates from the spatial mean (Hu et al. 2017, arxiv.org/abs/1709.01507)."""

    def __init__(
        self, input_channels: int, squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to the same."""
        scale = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        return self.scale_activation(scale) * input


class MLP(nn.Sequential):
    """Linear layers with normalisation, activation and dropout between them."""

    def __init__(
        self, in_channels: int, hidden_channels: list[int], norm_layer: Norm = None,
        activation_layer: Norm = nn.ReLU, inplace: bool | None = None, bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        size = in_channels
        for hidden in hidden_channels[:-1]:
            layers.append(nn.Linear(size, hidden, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(hidden))
            if activation_layer is not None:
                layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            size = hidden
        layers.append(nn.Linear(size, hidden_channels[-1], bias=bias))
        layers.append(nn.Dropout(dropout, **options))
        super().__init__(*layers)


class Permute(nn.Module):
    """x.permute(dims)."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        """The dimensions of x, in the order of `dims`."""
        return x.permute(self.dims)
