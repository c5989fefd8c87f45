"""Matrix products and convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir.graph import Node

from .movement import transpose
from .rules import attributes, rule

if TYPE_CHECKING:
    from .writer import Writer

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@rule("dot_general")
def _dot_general(w: Writer, node: Node, a: str, b: str) -> Any:
    attrs = attributes(node)
    batch_a, batch_b = list(attrs["batch_a"]), list(attrs["batch_b"])
    contract_a, contract_b = list(attrs["contract_a"]), list(attrs["contract_b"])
    rank_a, rank_b = (len(each.shape) for each in node.inputs)
    free_a = [d for d in range(rank_a) if d not in batch_a + contract_a]
    free_b = [d for d in range(rank_b) if d not in batch_b + contract_b]
    if len(contract_a) == 1 and (
        len(free_b) <= 1 if not batch_a else len(free_a) == len(free_b) == 1
    ):
        if node.dtype.is_float and rank_a == rank_b == 2:
            return w.emit("Gemm", a, b, transA=1 - contract_a[0], transB=contract_b[0])
        left = transpose(w, a, [*batch_a, *free_a, *contract_a])
        return w.emit("MatMul", left, transpose(w, b, [*batch_b, *contract_b, *free_b]))
    return w.emit("Einsum", a, b, equation=_equation(
        rank_a, rank_b, batch_a, batch_b, contract_a, contract_b, free_a, free_b
    ))


def _equation(
    rank_a: int, rank_b: int, batch_a: list[int], batch_b: list[int], contract_a: list[int],
    contract_b: list[int], free_a: list[int], free_b: list[int],
) -> str:
    of_a = dict(enumerate(_LETTERS[:rank_a]))
    of_b = dict(zip(free_b, _LETTERS[rank_a:], strict=False))
    of_b.update({b: of_a[a] for a, b in zip(batch_a, batch_b, strict=True)})
    of_b.update({b: of_a[a] for a, b in zip(contract_a, contract_b, strict=True)})
    result = [*(of_a[d] for d in (*batch_a, *free_a)), *(of_b[d] for d in free_b)]
    left, right = ("".join(of[d] for d in range(n)) for of, n in ((of_a, rank_a), (of_b, rank_b)))
    return f"{left},{right}->{''.join(result)}"


def _window(attrs: Any) -> dict[str, Any]:
    """Strides, pads and dilations in ONNX's words."""
    return {
        "strides": list(attrs["stride"]), "dilations": list(attrs["dilation"]),
        "pads": [*attrs["pad_low"], *attrs["pad_high"]], "group": attrs["groups"],
    }


@rule("conv")
def _conv(w: Writer, node: Node, x: str, weight: str) -> Any:
    return w.emit(
        "Conv", x, weight, kernel_shape=list(_kernel(w, node)), **_window(attributes(node))
    )


@rule("conv_input_grad")
def _conv_transpose(w: Writer, node: Node, g: str, weight: str) -> Any:
    """The transposed convolution; `output_padding` is what is left to the size that it gives."""
    attrs = attributes(node)
    behind = []
    for want, have, k, stride, low, high, dilation in zip(
        node.shape[2:], node.inputs[0].shape[2:], _kernel(w, node), attrs["stride"],
        attrs["pad_low"], attrs["pad_high"], attrs["dilation"], strict=True,
    ):
        left = want - ((have - 1) * stride + (k - 1) * dilation + 1 - low - high)
        if not isinstance(left, int):
            w.refuse(
                f"the size {want} that it gives is not fixed by the size {have} that it is given",
                "keep that size fixed",
            )
        behind.append(left)
    return w.emit(
        "ConvTranspose", g, weight, kernel_shape=list(_kernel(w, node)), output_padding=behind,
        **_window(attrs),
    )


def _kernel(w: Writer, node: Node) -> tuple[int, ...]:
    window = node.inputs[1].shape[2:]
    if not all(isinstance(size, int) for size in window):
        w.refuse(f"its kernel has the free size {window}", "keep the sizes of kernels fixed")
    return window  # type: ignore[return-value]


@rule("linalg_det")
def _det(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Det", x)
