"""What autocast does to which function, as data: torch's lists for the CPU and for GPUs.

Source: PyTorch 2.13, `aten/src/ATen/autocast_mode.h` (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE, AT_FORALL_PROMOTE: CUDA and
the devices of plug-ins) and `autocast_mode.cpp` (the CPU's list, and what is banned); the page
pytorch.org/docs/stable/amp.html names the same. Names are torch's; linalg's are linalg_*.
"""

from __future__ import annotations

from enum import Enum


class Policy(Enum):
    """What happens to a function's tensors: those of the device, float, and not float64."""

    LOWER = "cast to autocast's dtype"
    FULL = "cast to float32"
    RESULT = "the dtype argument is float32, unless the caller gives one"
    WIDEST = "cast to float32 if one of them is; otherwise left"
    REFUSED = "an error"
    # of functions that torch computes at once, and graphc by calling others, which have policies
    INSIDE = "left, also by the functions that this one calls"


_Lists = dict[Policy, str]

# recurrent_*: of LSTM, GRU and RNN, and their cells (torch's _cudnn_rnn, lstm_cell, ...);
# lstm_layers: of LSTM without projections over what is not packed (its mkldnn_rnn_layer).
# Behind an empty line: what torch makes of listed functions, and graphc at once
_CPU: _Lists = {
    Policy.LOWER: """
        addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
        conv_transpose3d linalg_vecdot linear lstm_layers matmul mm prelu
        scaled_dot_product_attention

        chain_matmul einsum inner linalg_matmul linalg_multi_dot matrix_power tensordot
    """,
    Policy.FULL: """
        adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy
        binary_cross_entropy_with_logits cdist cholesky cholesky_inverse cholesky_solve
        cosine_embedding_loss cross_entropy ctc_loss fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft
        fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn
        fractional_max_pool2d fractional_max_pool3d
        geqrf grid_sample grid_sampler grid_sampler_2d grid_sampler_3d hinge_embedding_loss
        huber_loss inverse kl_div l1_loss linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig
        linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv
        linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd
        linalg_svdvals linalg_tensorinv linalg_tensorsolve lu lu_solve margin_ranking_loss
        max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss
        nanquantile nll_loss orgqr ormqr pinverse poisson_nll_loss polar prod qr quantile
        reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d
        smooth_l1_loss soft_margin_loss svd trace triangular_solve triplet_margin_loss
        view_as_complex
    """,
    Policy.INSIDE: "linalg_lu_solve",
}

_GPU: _Lists = {
    Policy.LOWER: """
        addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d einsum linalg_multi_dot linalg_vecdot
        linear matmul mm mv prelu recurrent_cell recurrent_layers scaled_dot_product_attention

        linalg_matmul matrix_power
    """,
    Policy.FULL: """
        acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss
        cosine_similarity dist erfinv exp expm1 frobenius_norm group_norm hinge_embedding_loss
        huber_loss kl_div l1_loss layer_norm log log10 log1p log2 logsumexp margin_ranking_loss
        mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nuclear_norm
        pdist poisson_nll_loss pow reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss
        soft_margin_loss softplus tan triplet_margin_loss upsample

        arccos arcsin cross_entropy cumulative_trapezoid multilabel_soft_margin_loss square
    """,
    Policy.RESULT: """
        cumprod cumsum linalg_matrix_norm linalg_vector_norm log_softmax norm prod softmax sum

        linalg_norm
    """,
    Policy.WIDEST: """
        addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put scatter_add
        tensordot vdot

        arctan2 inner
    """,
    Policy.REFUSED: "binary_cross_entropy",
    Policy.INSIDE: """
        celu elu grid_sampler_2d grid_sampler_3d linalg_cross linalg_lu_solve logsigmoid mish
        mvlgamma native_batch_norm native_group_norm ormqr selu special_entr special_multigammaln
        special_xlog1py trace

        masked_log_softmax masked_logsumexp masked_mean masked_norm masked_normalize masked_prod
        masked_softmax masked_softmin masked_std masked_sum masked_var
    """,
}


def _by_name(lists: _Lists) -> dict[str, Policy]:
    return {name: policy for policy, names in lists.items() for name in names.split()}


CPU, GPU = _by_name(_CPU), _by_name(_GPU)
NAMES = frozenset((*CPU, *GPU))


def policy_of(name: str, kind: str) -> Policy | None:
    """What autocast does to a function on a type of device; None: it does not touch it. Devices
    that others register are as GPUs, as they are in torch."""
    return (CPU if kind == "cpu" else GPU).get(name)
