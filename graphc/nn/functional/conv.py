"""Linear maps and convolutions."""

from __future__ import annotations

from typing import Any

from ...frontend import float32, promote
from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.dispatch import apply
from ...frontend.errors import located
from ...frontend.functions.arguments import environment, named
from ...frontend.functions.arguments import shape as shape_of_tensor
from ...frontend.functions.dtype_names import CPP_NAMES
from ...frontend.functions.einsum import einsum
from ...frontend.replayed import replayed
from ...frontend.tensor import Tensor
from ...ir import ops


def tuple_of(value: Any, count: int, name: str = "argument") -> tuple[int, ...]:
    """An int or a sequence as `count` ints."""
    if isinstance(value, (tuple, list)):
        if len(value) == 1:
            return tuple(value) * count
        if len(value) != count:
            raise RuntimeError(f"expected {name} to be a single value or a list of {count} values, "
                               f"but got {name}={list(value)}")
        return tuple(value)
    return (value,) * count


def _rounds_once(*given: Tensor) -> bool:
    """Half precision: products are summed in float32, the bias among them, then rounded."""
    dtype = given[0].dtype
    return dtype.is_float and dtype.bits == 16 and all(x.dtype is dtype for x in given)


@listed
@replayed
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, weight [out, in]."""
    rank = input.dim()
    if weight.dim() != 2:
        _linear_ranks(rank, weight, bias)
    if rank == 0 or (weight.dim() == 2 and input.shape[-1] != weight.shape[-1]):
        raise _linear_shapes(input, weight)
    if input.dtype is not weight.dtype or (bias is not None and bias.dtype is not weight.dtype):
        raise _linear_dtypes(input, weight, bias)
    if bias is not None and _rounds_once(input, weight, bias):
        wide = linear(*(x.to(T.float32) for x in (input, weight, bias)))
        return named(wide.to(input.dtype), "AddmmBackward0" if rank == 2 else "ViewBackward0")
    result = apply(
        ops.dot_general, input, weight, batch_a=(), batch_b=(), contract_a=(rank - 1,),
        contract_b=(weight.dim() - 1,), **float32.of_product(input, weight),
    )
    if bias is None:
        return result if rank == 2 else named(result, "UnsafeViewBackward0")
    return named(result + bias, "AddmmBackward0" if rank == 2 else "ViewBackward0")


def _linear_ranks(rank: int, weight: Tensor, bias: Tensor | None) -> None:
    """Raise RuntimeError for weights that are no matrix, nor a vector without a bias."""
    if rank and weight.dim() == 0:
        raise RuntimeError(located(
            f"both arguments to linear need to be at least 1D, but they are {rank}D and 0D"
        ))
    if weight.dim() > 2:
        raise RuntimeError(located(
            f"t() expects a tensor with <= 2 dimensions, but self is {weight.dim()}D"
        ))
    if bias is not None and bias.dim():
        raise RuntimeError(located("mat2 must be a matrix, got 1-D tensor"))


def _linear_shapes(input: Tensor, weight: Tensor) -> RuntimeError:
    if input.dim() == 0:
        return RuntimeError(located(
            f"both arguments to linear need to be at least 1D, but they are 0D and {weight.dim()}D"
        ))
    rows = 1
    for size in input.shape[:-1]:
        rows = rows * size
    wanted, outputs = weight.shape[1], weight.shape[0]
    return RuntimeError(located(
        f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and "
        f"{wanted}x{outputs}). Cure: an input whose last size is {wanted}, or a layer with "
        f"in_features={input.shape[-1]}; this one got {list(input.shape)}"
    ))


def _linear_dtypes(input: Tensor, weight: Tensor, bias: Tensor | None) -> RuntimeError:
    first, second = "mat1", input
    if input.dtype is weight.dtype and bias is not None:
        first, second = "self", bias
    elif bias is None:
        given, own = CPP_NAMES[input.dtype], CPP_NAMES[weight.dtype]
        return RuntimeError(located(
            f"expected m1 and m2 to have the same dtype, but got: {given} != {own}. "
            f"{_to_dtype(weight)}"
        ))
    return RuntimeError(located(
        f"{first} and mat2 must have the same dtype, but got {promote._name(second.dtype)} and "
        f"{promote._name(weight.dtype)}. {_to_dtype(weight)}"
    ))


def _to_dtype(weight: Tensor) -> str:
    return f"Cure: give the weight's dtype, x.to({weight.dtype}), or convert the model"


@listed
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x1 W x2 + bias, weight [out, in1, in2]."""
    if (wrong := _wrong_sizes(input1, input2, weight, bias)) is not None:
        raise RuntimeError(located(f"bilinear(): {wrong}"))
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


def _wrong_sizes(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None
) -> str | None:
    """What einsum and an addition would broadcast, and bilinear() does not take."""
    if input1.dim() != input2.dim():
        return f"input dimensions do not match: got {input1.dim()} and {input2.dim()}"
    for i, (one, other) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if one != other:
            return f"input batch dimensions do not match at dim {i}: got {one} and {other}"
    wanted = [("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])]
    if bias is not None:
        wanted.append(("bias", bias, weight.shape[0]))
    for name, given, size in wanted:
        if given.shape[-1] != size:
            return (
                f"{name} size does not match weight size: got {given.shape[-1]} but expected {size}"
            )
    return None


def _check(
    input: Tensor, weight: Tensor, bias: Tensor | None, groups: int, spatial: int, transposed: bool
) -> None:
    if weight.dim() != spatial + 2:
        raise RuntimeError(
            f"expected weight of {spatial + 2} dimensions for conv{spatial}d, "
            f"got {list(weight.shape)}"
        )
    if input.dim() not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to "
            f"conv{spatial}d, but got input of size: {list(input.shape)}"
        )
    other, word = (weight, "bias/weight") if bias is None else (bias, "bias")
    if input.dtype is not weight.dtype or input.dtype is not other.dtype:
        raise RuntimeError(located(
            f"Input type ({CPP_NAMES[input.dtype]}) and {word} type ({CPP_NAMES[other.dtype]}) "
            f"should be the same. {_to_dtype(weight)}"
        ))
    if 0 in weight.shape[2:]:
        words = ("kernel_depth", "kernel_height", "kernel_width")
        sizes = zip(words[-max(spatial, 2) :], ([1] * 2 + [*weight.shape[2:]])[-max(spatial, 2) :],
                    strict=True)
        raise RuntimeError(located(
            "kernel size should be greater than zero, but got "
            + " ".join(f"{word}: {size}" for word, size in sizes)
        ))
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != outputs):
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else ''}weight of size "
            f"{list(weight.shape)}, expected bias to be 1-dimensional with {outputs} elements, but "
            f"got bias of size {list(bias.shape)} instead"
        )
    _known_sizes(weight)
    channels = input.shape[-spatial - 1]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != expected:
        raise RuntimeError(
            f"Given {'transposed=1' if transposed else f'groups={groups}'}, weight of size "
            f"{list(weight.shape)}, expected input{list(input.shape)} to have {expected} "
            f"channels, but got {channels} channels instead"
        )


def _known_sizes(weight: Tensor) -> None:
    """Of a compiled call with weights of any size: its version is for these sizes, for which there
    is native code. Images keep theirs open. A program that is exported holds what was declared."""
    sizes = shape_of_tensor(weight)
    if not local.exporting and not all(isinstance(size, int) for size in sizes):
        for size in sizes:
            environment().specialise(size)


def _same_padding(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    low = tuple(t // 2 for t in total)
    return low, tuple(t - x for t, x in zip(total, low, strict=True))


def _on_integers(
    convolve: Any, spatial: int, input: Tensor, weight: Tensor, bias: Any, *rest: Any
) -> Tensor:
    """Integers by way of float64, exact below 2^53."""
    wide = convolve(
        spatial, input.double(), weight.double(), None if bias is None else bias.double(), *rest
    )
    result: Tensor = wide.to(input.dtype)
    return result


def _on_complex(
    convolve: Any, spatial: int, input: Tensor, weight: Tensor, bias: Any, *rest: Any
) -> Tensor:
    """(a + bi)(c + di) by three real convolutions: ac, bd and (a + b)(c + d)."""
    a, b, c, d = input.real, input.imag, weight.real, weight.imag
    first, second = (convolve(spatial, x, w, None, *rest) for x, w in ((a, c), (b, d)))
    both = convolve(spatial, a + b, c + d, None, *rest)
    result = T.complex(first - second, both - first - second)
    return result if bias is None else result + bias.reshape([-1] + [1] * spatial)


def _conv(
    spatial: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> Tensor:
    _check(input, weight, bias, groups, spatial, transposed=False)
    if not input.is_floating_point():
        convolve = _on_complex if input.is_complex() else _on_integers
        return convolve(_conv, spatial, input, weight, bias, stride, padding, dilation, groups)
    if bias is not None and _rounds_once(input, weight, bias):
        x, w, b = (x.to(T.float32) for x in (input, weight, bias))
        return _conv(spatial, x, w, b, stride, padding, dilation, groups).to(input.dtype)
    stride = tuple_of(stride, spatial, "stride")
    dilation = tuple_of(dilation, spatial, "dilation")
    if padding == "same":
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        low, high = _same_padding(tuple(weight.shape[2:]), dilation)
    elif padding == "valid":
        low = high = (0,) * spatial
    elif isinstance(padding, str):
        raise RuntimeError(located(
            f"Invalid padding string: {padding!r}. Cure: 'valid', 'same', or numbers"
        ))
    else:
        low = high = tuple_of(padding, spatial, "padding")
    batched = input.dim() == spatial + 2
    result = apply(
        ops.conv, input if batched else input.unsqueeze(0), weight, stride=stride, pad_low=low,
        pad_high=high, dilation=dilation, groups=groups,
        **float32.of_convolution(input, weight),
    )
    if bias is not None:
        result = named(result + bias.reshape([1, -1] + [1] * spatial), "ConvolutionBackward0")
    return result if batched else result.squeeze(0)


@listed
@replayed
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """input [N, C, L], weight [O, C/groups, K]."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@listed
@replayed
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """input [N, C, H, W], weight [O, C/groups, KH, KW]."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@listed
@replayed
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """input [N, C, D, H, W], weight [O, C/groups, KD, KH, KW]."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    spatial: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Tensor:
    _check(input, weight, bias, groups, spatial, transposed=True)
    if not input.is_floating_point():
        convolve = _on_complex if input.is_complex() else _on_integers
        return convolve(
            _conv_transpose, spatial, input, weight, bias, stride, padding, output_padding, groups,
            dilation,
        )
    if bias is not None and _rounds_once(input, weight, bias):
        x, w, b = (x.to(T.float32) for x in (input, weight, bias))
        wide = _conv_transpose(
            spatial, x, w, b, stride, padding, output_padding, groups, dilation
        )
        return wide.to(input.dtype)
    stride = tuple_of(stride, spatial, "stride")
    padding = tuple_of(padding, spatial, "padding")
    extra = tuple_of(output_padding, spatial, "output_padding")
    dilation = tuple_of(dilation, spatial, "dilation")
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= max(s, d):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding: {extra} stride: {stride} dilation: {dilation}"
            )
    batched = input.dim() == spatial + 2
    x = input if batched else input.unsqueeze(0)
    # output_padding crops less at the end; beyond the padding there is nothing to uncover
    high = tuple(max(p - e, 0) for p, e in zip(padding, extra, strict=True))
    sizes = tuple(
        (x.shape[2 + i] - 1) * stride[i] - padding[i] - high[i]
        + dilation[i] * (weight.shape[2 + i] - 1) + 1
        for i in range(spatial)
    )
    result = apply(
        ops.conv_input_grad, x, weight,
        input_shape=(x.shape[0], weight.shape[1] * groups, *sizes), stride=stride,
        pad_low=padding, pad_high=high, dilation=dilation, groups=groups,
        **float32.of_convolution(x, weight),
    )
    beyond = [max(e - p, 0) for p, e in zip(padding, extra, strict=True)]
    if any(beyond):
        result = apply(
            ops.pad, result, low=(0,) * (spatial + 2), high=(0, 0, *beyond),
            interior=(0,) * (spatial + 2), value=0.0,
        )
    if bias is not None:
        result = named(result + bias.reshape([1, -1] + [1] * spatial), "ConvolutionBackward0")
    return result if batched else result.squeeze(0)


@listed
@replayed
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its input; weight [C, O/groups, K]."""
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@listed
@replayed
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its input; weight [C, O/groups, KH, KW]."""
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@listed
@replayed
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its input."""
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
