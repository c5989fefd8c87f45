"""Every torch function, as one namespace; importing it attaches the methods to Tensor.

    from graphc.frontend import functions as T
    T.exp(x); x.exp(); x + 1

The tables below are the index: a name's place tells which file defines it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes

from ..apart import functions_apart, methods_apart
from ..autocast import all_listed, listed
from ..device import device as device
from ..numbers import Size as Size
from ..promote import get_default_dtype as get_default_dtype
from ..promote import result_type as result_type
from ..promote import set_default_dtype as set_default_dtype
from ..tensor import Parameter as Parameter
from ..tensor import Tensor as Tensor
from ..tensor import register_methods
from ..tensors_only import tensors_only
from . import (
    checks,
    comparing,
    complex_numbers,
    conversion,
    copied_views,
    copies,
    creation,
    cuda_arrays,
    cumulative,
    deep_copies,
    distances,
    dlpack,
    dtype_names,
    finite_differences,
    foreach,
    gathering,
    histograms,
    index_reduce,
    indexing,
    inplace,
    inplace_shape,
    joining,
    linalg_basic,
    norms,
    operators,
    parts,
    pointwise,
    pointwise_combined,
    pointwise_composed,
    positions,
    printing,
    random,
    random_sampled,
    ranges,
    reduction,
    repetition,
    segments,
    settings,
    shape,
    sorting,
    statistics,
    storages,
    strided,
    subclasses,
    tensor_types,
    transfers,
    windows,
)
from . import einsum as einsum_module
from . import return_types as return_types

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# functions that are methods too
_BOTH = {
    pointwise: """
        abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2
        arctanh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh
        digamma div divide eq erf erfc erfinv exp exp2 expm1 fix floor floor_divide fmax fmin
        fmod ge greater greater_equal gt hypot isfinite isinf isnan le less less_equal
        lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor lt maximum
        minimum mul multiply ne neg negative not_equal pow reciprocal relu remainder round rsqrt
        sigmoid sign sin sinh sqrt square sub subtract tan tanh true_divide trunc
    """,
    pointwise_combined: "addcdiv addcmul lerp",
    pointwise_composed: """
        deg2rad float_power frac frexp gcd heaviside isneginf isposinf lcm ldexp logaddexp
        logaddexp2 logit nan_to_num nextafter positive rad2deg renorm signbit sinc xlogy
    """,
    complex_numbers: "angle conj_physical is_complex isreal sgn",
    statistics: "corrcoef cov dsplit hsplit is_same_size vsplit",
    reduction: """
        all amax amin aminmax any argmax argmin count_nonzero log_softmax logsumexp max mean
        min nanmean nansum prod softmax std sum var
    """,
    norms: "dist norm",
    cumulative: "cummax cummin cumprod cumsum diff logcumsumexp",
    shape: """
        adjoint flatten moveaxis movedim permute ravel reshape squeeze swapaxes swapdims t
        transpose unflatten unsqueeze
    """,
    parts: "chunk narrow select split tensor_split unbind",
    repetition: "broadcast_to repeat_interleave tile",
    positions: "argwhere nonzero nonzero_static",
    copies: "clone",
    joining: "flip fliplr flipud roll rot90 tril triu",
    strided: """
        as_strided as_strided_scatter diag diag_embed diagflat diagonal diagonal_scatter
        select_scatter slice_scatter
    """,
    gathering: """
        gather index_add index_copy index_fill index_put index_select masked_fill
        masked_scatter masked_select put scatter scatter_add scatter_reduce take_along_dim
    """,
    histograms: "histogram",
    index_reduce: "index_reduce",
    sorting: """
        argsort bincount histc kthvalue median mode msort nanmedian nanquantile quantile sort topk
        unique unique_consecutive
    """,
    linalg_basic: """
        addbmm addmm addmv addr baddbmm bmm cross dot ger inner kron matmul mm mv
        outer trace vdot
    """,
    comparing: "allclose equal isclose",
    conversion: "is_floating_point is_inference is_nonzero is_signed numel",
    random: "bernoulli multinomial",
}

_FUNCTIONS = {
    pointwise: "expit where",
    pointwise_composed: "rsub",
    complex_numbers: "complex conj imag polar real view_as_complex view_as_real",
    statistics: "broadcast_shapes combinations cumulative_trapezoid unravel_index vander",
    windows: "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    storages: "UntypedStorage",
    dlpack: "from_dlpack",
    settings: """
        are_deterministic_algorithms_enabled get_default_device get_deterministic_debug_mode
        get_float32_matmul_precision get_num_interop_threads is_anomaly_check_nan_enabled
        is_anomaly_enabled is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled
        set_anomaly_enabled set_default_device set_default_tensor_type
        set_deterministic_debug_mode set_flush_denormal set_float32_matmul_precision
        set_num_interop_threads set_warn_always typename use_deterministic_algorithms
    """,
    creation: """
        as_tensor asarray empty empty_like empty_permuted empty_strided from_numpy
        frombuffer full full_like ones ones_like scalar_tensor tensor tril_indices triu_indices
        zeros zeros_like
    """,
    ranges: "arange eye linspace logspace range",
    reduction: "std_mean var_mean",
    cumulative: "trapezoid trapz",
    parts: "split_with_sizes",
    finite_differences: "gradient",
    histograms: "histogramdd",
    copied_views: "constant_pad_nd unsafe_chunk unsafe_split",
    repetition: "broadcast_tensors",
    copies: """
        channels_last channels_last_3d contiguous_format memory_format preserve_format
    """,
    joining: """
        atleast_1d atleast_2d atleast_3d block_diag cartesian_prod cat column_stack concat
        concatenate dstack hstack meshgrid row_stack stack vstack
    """,
    sorting: "bucketize isin searchsorted",
    segments: """
        _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _segment_reduce
        segment_reduce
    """,
    linalg_basic: "_int_mm chain_matmul tensordot",
    distances: "cdist",
    comparing: "can_cast",
    conversion: """
        is_tensor layout sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr strided
    """,
    random: "normal rand rand_like randint randint_like randn randn_like randperm",
    random_sampled: "_sample_dirichlet _standard_gamma binomial poisson",
}

_METHODS = {
    tensor_types: "new",
    creation: "new_empty new_empty_strided new_full new_ones new_tensor new_zeros",
    shape: "reshape_as view view_as",
    parts: "split_with_sizes",
    repetition: "expand expand_as repeat",
    copies: "contiguous dim_order is_contiguous",
    strided: "fill_diagonal_ unfold",
    inplace_shape: "detach_ resize_ resize_as_ set_",
    pointwise_composed: "apply_ map_",
    statistics: "sum_to_size",
    copied_views: "unsafe_chunk unsafe_split",
    storages: "is_shared share_memory_ untyped_storage",
    transfers: "is_pinned pin_memory record_stream",
    dlpack: "__dlpack__ __dlpack_device__",
}


def _table(names: dict[Any, str]) -> dict[str, Any]:
    return {
        name: getattr(module, name) for module, text in names.items() for name in text.split()
    }


def _properties() -> dict[str, Any]:
    return {
        "T": property(shape.reverse_dims),
        "mT": property(shape.matrix_transpose),
        "H": property(shape.matrix_adjoint),
        "mH": property(shape.adjoint),
        **conversion.PROPERTIES,
        **cuda_arrays.PROPERTIES,
        **complex_numbers.PROPERTIES,
    }


_both = all_listed(_table(_BOTH))

# the whole namespace; torch's names of the dtypes hide those of Python
NAMES: dict[str, Any] = {
    **_both,
    **all_listed(_table(_FUNCTIONS)),
    **dtype_names.NAMES,
    "take": gathering.take_flat,
    "einsum": listed(einsum_module.einsum),
    "promote_types": dtype_names.promote_types,
    "result_type": result_type,
    "get_default_dtype": get_default_dtype,
    "set_default_dtype": set_default_dtype,
    "finfo": dtype_names.finfo,
    "iinfo": dtype_names.iinfo,
    **tensor_types.TYPES,
    "set_printoptions": printing.set_printoptions,
    "return_types": return_types,
}
globals().update(NAMES)

register_methods(_both)
register_methods(_table(_METHODS))
register_methods({"narrow_copy": copied_views.FUNCTIONS["narrow_copy"]})
register_methods({
    **operators.operator_methods(),
    **conversion.METHODS,
    **complex_numbers.METHODS,
    **indexing.METHODS,
    **printing.METHODS,
    **random.METHODS,
    **inplace.methods(),
    **_properties(),
    **deep_copies.METHODS,
    **subclasses.METHODS,
    "take": gathering.take_flat,
    "where": pointwise.where_method,
})
# functions that write into their first argument: torch.relu_(x), torch.zero_(x), ...
NAMES |= {
    name: getattr(Tensor, name)
    for name in """
        abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_
        atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_
        cos_ cosh_ deg2rad_ erf_ erfc_ exp2_ exp_ expm1_ fill_ floor_ frac_ log10_ log1p_ log2_ log_
        logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sin_
        sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
        fix_ gcd_ lcm_ ldexp_ get_device
    """.split()
}
NAMES |= foreach.table()
NAMES |= copied_views.FUNCTIONS
NAMES |= checks.NAMES
NAMES |= {
    "_assert": settings.assert_, "fill": inplace.fill,
    "resolve_conj": complex_numbers.resolve, "resolve_neg": complex_numbers.resolve,
    "is_conj": conversion.METHODS["is_conj"], "is_neg": conversion.METHODS["is_neg"],
    "resize_as_": inplace_shape.resize_as_,
    "detach": Tensor.detach, "detach_": inplace_shape.detach_, "index_put_": gathering.index_put_,
}
methods_apart()
NAMES = functions_apart(tensors_only(NAMES, "graphc"), "graphc")
globals().update(NAMES)
Tensor._graphc_constructor = staticmethod(tensor_types.legacy_constructor)
