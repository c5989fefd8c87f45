"""torch.batch_norm, torch.embedding, torch.kl_div, ...: functions of nn that torch has under its
own name, too, where they take what its C++ operators take: in another order, and with numbers for
reductions, which are "none" by default."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.tensor import Tensor
from . import bags, conv, ctc, loss, margin_loss, norm, variants
from . import sparse as sparse_functions

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(number: Any) -> str:
    """The name of a reduction. Raises ValueError for a number that is none."""
    if isinstance(number, str):
        return number
    if number not in (0, 1, 2):
        raise ValueError(f"{number} is not a valid value for reduction: 0 none, 1 mean, 2 sum")
    return _REDUCTIONS[number]


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """F.batch_norm(), the weight and the bias first."""
    return norm.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """F.instance_norm(), the weight and the bias first."""
    return norm.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:
    """F.layer_norm()."""
    return norm.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Tensor:
    """F.group_norm()."""
    return norm.group_norm(input, num_groups, weight, bias, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """F.embedding(), the table first; padding_idx -1: none."""
    return sparse_functions.embedding(
        indices, weight, None if padding_idx == -1 else padding_idx,
        scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
    )


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """F.embedding_bag() of one row of indices, the table first; mode 0 sum, 1 mean, 2 max. With it
    what torch's CPU operator gives besides: the bag of each index (none for plain sums), indices
    that count in each bag, and, for maxima, the index [bags, D] that each comes from."""
    if type(mode) is not int:
        raise TypeError(f"embedding_bag(): argument 'mode' must be int, not {type(mode).__name__}")
    if mode not in (0, 1, 2):
        raise ValueError(f"{mode} is not a valid mode: 0 sum, 1 mean, 2 max")
    result = bags.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq,
        mode=("sum", "mean", "max")[mode], sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )
    count = int(result.shape[0])
    bag = (T.arange(int(indices.shape[0])).unsqueeze(1) >= offsets[:count].unsqueeze(0)).sum(1) - 1
    bag = bag.to(indices.dtype)
    if mode == 0:
        none = T.zeros_like(offsets)
        return result, bag if padding_idx is not None else bag[:0], none, none.clone()
    counted = T.ones_like(indices)
    if padding_idx is not None:
        counted = (indices != padding_idx % weight.shape[0]).to(indices.dtype)
    sizes = T.zeros(count, dtype=indices.dtype).index_add(0, bag.long(), counted)
    if mode == 1:
        return result, bag, sizes, sizes.clone()
    largest = (weight[indices] == result[bag]) & (counted > 0).unsqueeze(1)  # first of equals
    where = T.arange(int(indices.shape[0])).unsqueeze(1).expand(largest.shape)
    where = T.where(largest, where, T.full_like(where, int(indices.shape[0])))
    start = T.full(result.shape, int(indices.shape[0]), dtype=T.int64)
    first = start.scatter_reduce(0, bag.long().unsqueeze(1).expand(largest.shape), where, "amin")
    found = T.cat([indices, indices.new_zeros(1)])[first]  # 0 of an empty bag
    return result, bag, sizes, found


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """F.dropout()."""
    return norm.dropout(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """F.alpha_dropout()."""
    return norm.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """F.feature_alpha_dropout()."""
    return variants.feature_alpha_dropout(input, p, train)


def kl_div(
    input: Tensor, target: Tensor, reduction: Any = 0, *, log_target: bool = False
) -> Tensor:
    """F.kl_div()."""
    return loss.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None,
    reduction: Any = 0,
) -> Tensor:
    """F.binary_cross_entropy_with_logits()."""
    return loss.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: Any
) -> Tensor:
    """F.poisson_nll_loss()."""
    return loss.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: Any = 0
) -> Tensor:
    """F.hinge_embedding_loss()."""
    return margin_loss.hinge_embedding_loss(
        input, target, margin, reduction=_reduction(reduction)
    )


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Any = 0
) -> Tensor:
    """F.margin_ranking_loss()."""
    return margin_loss.margin_ranking_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Any = 0
) -> Tensor:
    """F.cosine_embedding_loss()."""
    return margin_loss.cosine_embedding_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, reduction: Any = 0,
) -> Tensor:
    """F.triplet_margin_loss()."""
    return margin_loss.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction)
    )


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: Any = 0, zero_infinity: bool = False,
) -> Tensor:
    """F.ctc_loss()."""
    return ctc.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction),
        zero_infinity,
    )


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zeros for whole channels of [N, C, *]."""
    return norm._feature_dropout(input, p, train, False)


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Tensor:
    """F.conv1d(), conv2d() or conv3d(), or, `transposed`, their gradients by the input."""
    spatial = weight.dim() - 2
    if spatial not in (1, 2, 3):
        raise RuntimeError(
            f"convolution: expected a weight of 3 to 5 dimensions, got {weight.dim()}"
        )
    if transposed:
        return conv._conv_transpose(
            spatial, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv._conv(spatial, input, weight, bias, stride, padding, dilation, groups)


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norms over all dims but one, which stay as ones; over all, without dims, for dim -1."""
    if dim == -1:
        return v.norm(pow)
    if not -1 <= dim < v.dim():
        raise IndexError(f"norm_except_dim: dim {dim} of a tensor of {v.dim()} dimensions")
    sizes = [1] * v.dim()
    sizes[dim] = v.shape[dim]
    flat = v.transpose(0, dim).reshape(v.shape[dim], -1)
    return flat.norm(pow, 1).reshape(sizes)
