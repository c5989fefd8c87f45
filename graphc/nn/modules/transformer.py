"""Transformer encoder and decoder (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ...frontend import functions as T
from ...frontend.grad_mode import is_grad_enabled
from ...frontend.tensor import Tensor
from .. import functional as F
from .. import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


def _activation(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    known = {"relu": F.relu, "gelu": F.gelu}
    if given not in known:
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return known[given]


def _clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    """Self-attention, feed-forward and their norms and dropouts: what both kinds share."""

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.activation(self.linear1(x))
        result: Tensor = self.linear2(self.dropout(hidden))
        return result

    @staticmethod
    def _attend(
        attention: Module, x: Tensor, memory: Tensor, mask: Any, padding: Any, causal: bool
    ) -> Tensor:
        output: Tensor = attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False,
            is_causal=causal,
        )[0]
        return output


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **kind
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.dropout1(
                self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal)
            )

        def feed(x: Tensor) -> Tensor:
            return self.dropout2(self._feed_forward(x))

        x = src
        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + feed(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + feed(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, and a feed-forward network."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **kind
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **kind
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.dropout1(self._attend(
                self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal
            ))

        def look_up(x: Tensor) -> Tensor:
            return self.dropout2(self._attend(
                self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask,
                memory_is_causal,
            ))

        def feed(x: Tensor) -> Tensor:
            return self.dropout3(self._feed_forward(x))

        x = tgt
        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + look_up(self.norm2(x))
            return x + feed(self.norm3(x))
        x = self.norm1(x + attend(x))
        x = self.norm2(x + look_up(x))
        return self.norm3(x + feed(x))


class TransformerEncoder(Module):
    """Copies of an encoder layer one after another.

    In evaluation without gradients, padding at the rows' ends comes out as zeros (before `norm`):
    torch's fast path leaves it out, as nested tensors.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None,
    ) -> Tensor:
        padding = src_key_padding_mask
        left_out = None
        if padding is not None and mask is None and self._leaves_out(src):
            left_out = _ends_of_rows(padding)
            if padding.dtype is not T.bool:  # a number is no weight here, but padding
                padding = padding.masked_fill(left_out, float("-inf"))
        output = src
        for layer in self.layers:
            output = layer(
                output, src_mask=mask, src_key_padding_mask=padding, is_causal=bool(is_causal)
            )
        if left_out is not None:
            output = output.masked_fill(left_out.unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)


    def _leaves_out(self, src: Tensor) -> bool:
        """Whether torch would go the way of nested tensors."""
        layer = self.layers[0]
        if not self.enable_nested_tensor or not isinstance(layer, TransformerEncoderLayer):
            return False
        attention = layer.self_attn
        kept_gradients = is_grad_enabled() and any(
            x.requires_grad for x in (src, *layer.parameters())
        )
        return (
            not (layer.training or layer.norm_first or kept_gradients)
            and src.dim() == 3 and attention.batch_first and attention.num_heads % 2 == 0
            and attention.in_proj_weight is not None and attention.in_proj_bias is not None
            and layer.activation in (F.relu, F.gelu) and layer.norm1.eps == layer.norm2.eps
        )


def _ends_of_rows(padding: Tensor) -> Tensor:
    """What is padding, bool [N, S], if it is at the ends of all rows; else nothing."""
    padded = padding if padding.dtype is T.bool else T.ne(padding, 0)
    before = padded[:, :-1] & ~padded[:, 1:]
    found: Tensor = padded & ~before.any()
    return found


class TransformerDecoder(Module):
    """Copies of a decoder layer one after another."""

    def __init__(
        self, decoder_layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        output = tgt
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, custom_encoder: Any = None, custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        options = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype,
        )
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(*options), num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind),
            )
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(*options), num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind),
            )
        self.decoder = custom_decoder
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        output: Tensor = self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return output

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Any = None, dtype: Any = None
    ) -> Tensor:
        """[sz, sz]: -inf above the diagonal, 0 elsewhere."""
        return T.full((sz, sz), float("-inf"), dtype=dtype, device=device).triu(1)
