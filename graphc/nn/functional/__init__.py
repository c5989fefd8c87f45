"""torch.nn.functional: the functions that layers call; a file is imported when one of its names is
asked for."""

import importlib
from typing import TYPE_CHECKING, Any

from ...frontend.tensors_only import tensors_only
from ...on_demand import on_demand

if TYPE_CHECKING:
    from .activation import (
        celu,
        elu,
        gelu,
        glu,
        gumbel_softmax,
        hardshrink,
        hardsigmoid,
        hardswish,
        hardtanh,
        leaky_relu,
        log_softmax,
        logsigmoid,
        mish,
        normalize,
        prelu,
        relu,
        relu6,
        relu_,
        selu,
        sigmoid,
        silu,
        softmax,
        softmin,
        softplus,
        softshrink,
        softsign,
        tanh,
        tanhshrink,
        threshold,
    )
    from .attention import (
        multi_head_attention_forward,
        scaled_dot_product_attention,
    )
    from .bags import (
        embedding_bag,
    )
    from .conv import (
        bilinear,
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
        linear,
    )
    from .ctc import (
        ctc_loss,
    )
    from .folding import (
        channel_shuffle,
        fold,
        native_channel_shuffle,
        unfold,
    )
    from .grid import (
        affine_grid,
        grid_sample,
    )
    from .linear_loss import linear_cross_entropy
    from .loss import (
        binary_cross_entropy,
        binary_cross_entropy_with_logits,
        cross_entropy,
        gaussian_nll_loss,
        huber_loss,
        kl_div,
        l1_loss,
        mse_loss,
        nll_loss,
        poisson_nll_loss,
        smooth_l1_loss,
    )
    from .margin_loss import (
        cosine_embedding_loss,
        hinge_embedding_loss,
        margin_ranking_loss,
        multi_margin_loss,
        multilabel_margin_loss,
        multilabel_soft_margin_loss,
        soft_margin_loss,
        triplet_margin_loss,
        triplet_margin_with_distance_loss,
    )
    from .norm import (
        alpha_dropout,
        batch_norm,
        dropout,
        dropout1d,
        dropout2d,
        dropout3d,
        group_norm,
        instance_norm,
        layer_norm,
        local_response_norm,
        rms_norm,
    )
    from .padding import (
        cosine_similarity,
        pad,
        pairwise_distance,
        pixel_shuffle,
        pixel_unshuffle,
    )
    from .pooling import (
        adaptive_avg_pool1d,
        adaptive_avg_pool2d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
        avg_pool1d,
        avg_pool2d,
        avg_pool3d,
        max_pool1d,
        max_pool2d,
        max_pool3d,
    )
    from .resize import (
        interpolate,
        upsample,
        upsample_bilinear,
        upsample_nearest,
    )
    from .sparse import (
        embedding,
        one_hot,
    )
    from .unpooling import (
        adaptive_max_pool1d_with_indices,
        adaptive_max_pool2d_with_indices,
        adaptive_max_pool3d_with_indices,
        fractional_max_pool2d,
        fractional_max_pool2d_with_indices,
        fractional_max_pool3d,
        fractional_max_pool3d_with_indices,
        lp_pool1d,
        lp_pool2d,
        lp_pool3d,
        max_pool1d_with_indices,
        max_pool2d_with_indices,
        max_pool3d_with_indices,
        max_unpool1d,
        max_unpool2d,
        max_unpool3d,
    )
    from .variants import (
        celu_,
        conv_tbc,
        elu_,
        feature_alpha_dropout,
        hardtanh_,
        leaky_relu_,
        pdist,
        rrelu,
        rrelu_,
        selu_,
        threshold_,
    )

_NAMES = {
    "activation": """
        celu elu gelu glu gumbel_softmax hardshrink hardsigmoid hardswish hardtanh
        leaky_relu log_softmax logsigmoid mish normalize prelu relu relu6 relu_ selu sigmoid
        silu softmax softmin softplus softshrink softsign tanh tanhshrink threshold
    """,
    "attention": "multi_head_attention_forward scaled_dot_product_attention",
    "conv": """
        bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        linear
    """,
    "ctc": "ctc_loss",
    "bags": "embedding_bag",
    "folding": "channel_shuffle fold native_channel_shuffle unfold",
    "grid": "affine_grid grid_sample",
    "linear_loss": "linear_cross_entropy",
    "loss": """
        binary_cross_entropy binary_cross_entropy_with_logits cross_entropy
        gaussian_nll_loss huber_loss kl_div l1_loss mse_loss nll_loss poisson_nll_loss
        smooth_l1_loss
    """,
    "margin_loss": """
        cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss
        multilabel_margin_loss multilabel_soft_margin_loss soft_margin_loss
        triplet_margin_loss triplet_margin_with_distance_loss
    """,
    "norm": """
        alpha_dropout batch_norm dropout dropout1d dropout2d dropout3d group_norm
        instance_norm layer_norm local_response_norm rms_norm
    """,
    "padding": "cosine_similarity pad pairwise_distance pixel_shuffle pixel_unshuffle",
    "pooling": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d
        max_pool2d max_pool3d
    """,
    "resize": "interpolate upsample upsample_bilinear upsample_nearest",
    "sparse": "embedding one_hot",
    "unpooling": """
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices fractional_max_pool2d
        fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices lp_pool1d lp_pool2d lp_pool3d
        max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d
        max_unpool2d max_unpool3d
    """,
    "variants": """
        celu_ conv_tbc elu_ feature_alpha_dropout hardtanh_ leaky_relu_ pdist rrelu rrelu_
        selu_ threshold_
    """,
}
_OTHERS = "native resize_bytes resize_smooth".split()
# helpers that model files import from here as in torch; nn.modules imports this package first
_FROM_MODULES_UTILS = frozenset({"_single", "_pair", "_triple", "_list_with_default"})


def _for_tensors(names: dict[str, Any]) -> dict[str, Any]:
    return tensors_only(names, __name__)


_named, __dir__, __all__ = on_demand(__name__, _NAMES, _OTHERS, _for_tensors)


def __getattr__(name: str) -> Any:
    if name in _FROM_MODULES_UTILS:
        return getattr(importlib.import_module("graphc.nn.modules.utils"), name)
    return _named(name)
