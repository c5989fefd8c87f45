"""Which results are the argument itself, share its memory or are views: as PyTorch has it.

Every expression is one where a function has nothing to do (shifts of 0, groups of 1, the same
dtype, p=0, a full slice), or could end in a view of something it made on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

# of m (the torch namespace), F, nn; x [2, 3, 4], v [4], s [], q [4, 4], im [1, 4, 4, 4] are
# float32; i [4] and si [] int64, b [4], sb [] and b3 [2, 3, 4] bool, z [4] complex64
EXPRESSIONS = {
    "rolls": """
        x.roll(0, 0); x.roll(3, 1); x.roll(-6, 1); x.roll(24); x.roll((0, 0), (0, 1));
        m.roll(x, 0); s.roll(3); v[:0].roll(1); v[:1].roll(1); v[:1].roll(1, 0)
    """,
    "shuffles": """
        F.pixel_shuffle(im, 1); F.pixel_unshuffle(im, 1); F.channel_shuffle(im, 1);
        F.channel_shuffle(im, 4); m.channel_shuffle(im, 1); m.pixel_shuffle(im, 1);
        F.native_channel_shuffle(im, 1)
    """,
    "order": """
        x.flip(()); x.flip(0); v[:1].flip(0); m.fliplr(q); m.flipud(q); x.rot90(0); x.rot90(4);
        x.rot90(0, (0, 1)); x.rot90(2, (0, 1))
    """,
    "repeats": """
        x.repeat(1, 1, 1); v.repeat(1); x.tile(1); x.tile(()); s.repeat(()); s.tile(());
        x.tile((1, 1, 1)); v.repeat_interleave(1); x.repeat_interleave(1, 0);
        x.repeat_interleave(1); m.repeat_interleave(v, m.tensor([1, 1, 1, 1]))
    """,
    "joins": """
        m.cat([x]); m.cat([x], 1); m.concat([x]); m.hstack([x]); m.vstack([x]); m.dstack([x]);
        m.column_stack([q]); m.row_stack([q]); m.stack([x]); m.cat([x, x[:0]]);
        m.cat((m.empty(0), x)); m.block_diag(q); m.cartesian_prod(v); m.combinations(v, 1);
        m.meshgrid(v, indexing='ij')[0]; m.meshgrid([v], indexing='ij')[0];
        m.meshgrid(s, indexing='ij')[0]
    """,
    "atleast": """
        m.atleast_1d(v); m.atleast_2d(q); m.atleast_3d(x); m.atleast_1d(s); m.atleast_1d([v])[0];
        m.atleast_1d(v, q)[0]; m.atleast_2d(v); m.atleast_3d(q)
    """,
    "broadcasts": """
        m.broadcast_to(x, (2, 3, 4)); m.broadcast_tensors(x)[0]; m.broadcast_tensors(x, x)[0];
        x.expand(2, 3, 4); x.expand_as(x); m.broadcast_tensors(x, s)[0]; x.expand(-1, -1, -1)
    """,
    "casts": """
        x.to(m.float32); x.to('cpu'); x.to(x); x.float(); x.type(m.float32); x.type_as(x);
        x.cpu(); x.to(m.float32, copy=True); x.float(memory_format=m.contiguous_format);
        im.float(memory_format=m.channels_last); im.to(memory_format=m.channels_last);
        im.contiguous(memory_format=m.channels_last); x.contiguous();
        x.transpose(0, 1).contiguous(); x.transpose(0, 1).float(); i.long(); b.bool(); i.int();
        x.double(); x.to(dtype=None); x.to(device='cpu', dtype=m.float32);
        x.type('torch.FloatTensor'); im.to(m.float32, memory_format=m.channels_last);
        im.cpu(memory_format=m.channels_last); z.cfloat(); z.to(m.complex64); x.clone();
        x.detach(); x.data; x.requires_grad_(False)
    """,
    "creation": """
        m.as_tensor(x); m.asarray(x); m.asarray(x, copy=True); m.asarray(x, copy=False);
        m.tensor(x); m.as_tensor(x, dtype=m.float32); x.new_tensor(x);
        m.asarray(x, dtype=m.float32); m.as_tensor(x, device='cpu')
    """,
    "reshapes": """
        x.reshape(2, 3, 4); x.reshape(x.shape); x.view(2, 3, 4); x.view_as(x); x.reshape_as(x);
        x.flatten(); v.flatten(); v.flatten(0, 0); v.ravel(); x.ravel(); s.flatten(); s.ravel();
        x.flatten(1, 1); x.unflatten(1, (3, )); x.unflatten(1, (1, 3)); x.view(m.float32);
        x.view(m.int32); x.view(-1); x.transpose(0, 1).reshape(3, 2, 4);
        x.transpose(0, 1).flatten(); x.transpose(0, 1).reshape(-1); q.t().ravel(); s.reshape(());
        s.view(()); s.reshape(1); x.view(dtype=m.float32)
    """,
    "dims": """
        x.squeeze(); x.squeeze(0); x.squeeze((0, 1)); v.squeeze(0); s.squeeze(); s.squeeze(0);
        x.unsqueeze(0); x.permute(0, 1, 2); x.transpose(0, 0); v.t(); s.t(); q.t(); v.T; s.T;
        x.mT; q.H; x.movedim(0, 0); x.moveaxis(0, 0); x.movedim((), ()); x.swapaxes(1, 1);
        x.swapdims(1, 1); s.permute(()); m.adjoint(q); q.adjoint(); s.transpose(0, 0)
    """,
    "indexing": """
        x[:]; x[...]; x[()]; s[()]; s[...]; x[0:2]; x[:, :, :]; x[::1]; x[None];
        x[m.tensor([0, 1])]; x[m.ones(2, dtype=m.bool)]; x[[0, 1]]; x[True]; x[b3];
        x[:, m.tensor([0, 1, 2])]; s[None]; v[0:4]
    """,
    "parts": """
        x.narrow(0, 0, 2); x.narrow_copy(0, 0, 2); x.select(0, 0); m.chunk(x, 1)[0];
        m.split(x, 2)[0]; x.split([2])[0]; m.tensor_split(x, 1)[0]; m.hsplit(x, 1)[0];
        x.unbind()[0]; m.index_select(x, 0, m.tensor([0, 1]));
        x.take_along_dim(m.zeros(1, 1, 1, dtype=m.int64), 0); x.as_strided((2, 3, 4), (12, 4, 1));
        x.unfold(0, 2, 1); x.diagonal(); v.diag().diagonal(); m.dsplit(x, 1)[0]; m.vsplit(x, 1)[0]
    """,
    "complex_and_rounding": """
        m.real(x); x.real; m.imag(z); m.real(z); m.conj(x); x.conj(); x.conj_physical();
        x.resolve_conj(); x.resolve_neg(); m.positive(x); +x; z.resolve_conj(); m.view_as_real(z);
        m.abs(i); i.round(); i.floor(); i.ceil(); i.trunc(); x.abs(); m.sgn(x); z.conj_physical();
        m.conj_physical(x); i.fix(); z.resolve_neg(); z.angle(); x.real.real; i.rad2deg();
        b.logical_and(b); b.logical_not(); i.nan_to_num(); x.nan_to_num(); b.nan_to_num()
    """,
    "reductions": """
        x.sum(()); s.sum(); s.sum(0); v[:1].sum(0); s.mean(); s.amax(); s.max(); s.min();
        s.prod(); s.any(); sb.any(); sb.all(); s.logsumexp(0); s.cumsum(0); s.cumprod(0);
        v[:1].cumsum(0); s.max(0)[0]; s.sort()[0]; v[:1].sort()[0]; v.sort()[0]; v.topk(4)[0];
        s.median(); s.mode()[0]; s.kthvalue(1)[0]; s.cummax(0)[0]; s.amax(());
        x.sum_to_size(2, 3, 4); x.sum_to_size((2, 3, 4)); s.norm(); s.std(correction=0);
        i.sum(dtype=m.int64); si.sum(); si.prod(); si.sum(0); sb.sum(); s.aminmax()[0];
        s.nansum(); s.nanmean(); s.quantile(0.5); s.nanmedian(); s.argsort(); s.logcumsumexp(0);
        m.trapezoid(v); v.msort(); s.unique(); v.unique(); m.unique_consecutive(v)
    """,
    "dropout": """
        F.dropout(x, 0.0); F.dropout(x, 0.5, False); F.dropout1d(x, 0.0); F.dropout2d(im, 0.0);
        F.dropout2d(im, 0.5, False); F.alpha_dropout(x, 0.0); F.alpha_dropout(x, 0.0, True);
        F.feature_alpha_dropout(im, 0.0, True); F.feature_alpha_dropout(im, 0.5, False);
        F.dropout(x, 0.0, True); m.dropout(x, 0.5, False); m.dropout(x, 0.0, True);
        m.native_dropout(x, 0.0, True)[0]; m.native_dropout(x, 0.5, False)[0];
        F.dropout2d(x, 0.0); F.dropout3d(x.unsqueeze(0), 0.5, False); F.dropout1d(x, 0.5, False);
        m.alpha_dropout(x, 0.5, False); F.dropout(x, 0., True, True)
    """,
    "modules": """
        nn.Identity()(x); nn.Dropout(0)(x); nn.Flatten()(q); nn.Flatten(0, 0)(v);
        nn.Unflatten(0, (2, ))(x); nn.PixelShuffle(1)(im); nn.ChannelShuffle(1)(im);
        nn.Sequential()(x); nn.ZeroPad2d(0)(im); nn.ConstantPad1d(0, 0)(x);
        nn.ReflectionPad1d(0)(x); nn.ReplicationPad1d(0)(x); nn.CircularPad1d(0)(x);
        nn.Upsample(scale_factor=1)(im); nn.MaxPool2d(1)(im); nn.AvgPool2d(1)(im);
        nn.AdaptiveAvgPool2d(4)(im); nn.AdaptiveAvgPool2d((None, None))(im);
        nn.AdaptiveAvgPool2d(1)(im[:, :, :1, :1]); nn.Dropout(0.5).eval()(x); nn.Hardtanh()(x);
        nn.ReLU()(x); nn.Unfold(1)(im); nn.LPPool1d(1, 1)(x); nn.Softmax(0)(s);
        nn.AdaptiveMaxPool2d(4)(im); nn.MaxPool1d(1)(x); nn.LocalResponseNorm(1)(x);
        nn.UpsamplingNearest2d(scale_factor=1)(im); nn.UpsamplingBilinear2d(scale_factor=1)(im);
        nn.AdaptiveAvgPool1d(4)(x); nn.AvgPool1d(1)(x); nn.Threshold(-100, 0)(x)
    """,
    "padding": """
        F.pad(x, (0, 0)); F.pad(x, ()); F.pad(x, (0, 0, 0, 0)); F.pad(x, (0, 0), mode='reflect');
        F.pad(x, (0, 0), mode='replicate'); F.pad(x, (0, 0), mode='circular');
        m.constant_pad_nd(x, (0, 0)); m.constant_pad_nd(x, (0, 0), 1.);
        F.pad(im, (0, 0, 0, 0), 'circular'); F.pad(x, (-1, 0)); F.pad(x, (0, -1, 0, 0), value=1.)
    """,
    "resizing": """
        F.interpolate(im, size=(4, 4)); F.interpolate(im, scale_factor=1);
        F.interpolate(im, size=(4, 4), mode='bilinear');
        F.interpolate(im, size=(4, 4), mode='bicubic');
        F.interpolate(im, size=(4, 4), mode='area'); F.interpolate(x, size=4, mode='linear');
        F.interpolate(im, scale_factor=1.0, mode='nearest-exact');
        F.interpolate(im, size=(4, 4), mode='bilinear', antialias=True);
        F.upsample(im, size=(4, 4)); F.max_pool2d(im, 1); F.avg_pool2d(im, 1);
        F.adaptive_avg_pool2d(im, (4, 4)); F.adaptive_max_pool2d(im, 4); F.avg_pool1d(x, 1);
        F.max_pool1d(x, 1); F.unfold(im, 1); F.fold(im.reshape(1, 4, 16), (4, 4), 1);
        F.max_unpool1d(x, m.arange(4).expand(2, 3, 4), 1); F.adaptive_avg_pool1d(x, 4);
        F.avg_pool3d(im, 1); F.adaptive_max_pool1d(x, 4); F.lp_pool1d(x, 1, 1);
        F.lp_pool2d(im, 1, 1); F.grid_sample(im, m.zeros(1, 4, 4, 2), align_corners=False);
        F.local_response_norm(im, 1); F.max_pool3d(im, 1); F.adaptive_avg_pool3d(im, 4)
    """,
    "normalisation": """
        F.layer_norm(x, (4, )); F.group_norm(im, 1); F.instance_norm(im); F.softmax(s, 0);
        F.log_softmax(s, 0); F.softmax(v[:1], 0); F.normalize(x); F.normalize(s, dim=0);
        F.relu(x); F.relu6(x); F.threshold(x, -100, 0.); F.hardtanh(x); F.leaky_relu(x, 1.);
        F.celu(x); F.elu(x); F.one_hot(i); F.embedding(i%2, q); F.glu(x); F.rms_norm(x, (4, ));
        F.prelu(x, m.ones(1)); F.hardshrink(x, 0.); F.softshrink(x, 0.); F.rrelu(x);
        F.logsigmoid(x); F.cosine_similarity(x, x); F.softmin(s, 0); F.tanhshrink(x)
    """,
    "losses": """
        F.mse_loss(x, x, reduction='none'); F.l1_loss(x, x, reduction='none'); F.mse_loss(s, s);
        F.binary_cross_entropy(v.sigmoid(), v.sigmoid(), reduction='none');
        F.nll_loss(v, m.tensor(1)); F.nll_loss(v, m.tensor(1), reduction='none');
        F.cross_entropy(v, m.tensor(1), reduction='none'); F.linear(v, q); F.linear(x, q);
        F.bilinear(v, v, m.ones(1, 4, 4)); F.conv1d(x, m.ones(3, 3, 1));
        F.conv1d(x[0], m.ones(3, 3, 1)); F.huber_loss(x, x, reduction='none');
        F.smooth_l1_loss(x, x, reduction='none', beta=0.); F.kl_div(x, x, reduction='none');
        F.pairwise_distance(q, q); F.triplet_margin_loss(q, q, q);
        F.scaled_dot_product_attention(q, q, q)
    """,
    "arithmetic": """
        x+0; x*1; x-0; x/1; x**1; x.pow(1); x.pow(0); i**1; i//1; i<<0; i>>0; i; b&b; b^False;
        x.add(0); x.mul(1); x.div(1); x.sub(0); i.float_power(1); x.clamp(min=-100.);
        x.clip(-1e9, 1e9); x.clamp_min(-100); x.lerp(x, 0.);
        m.where(m.ones(2, 3, 4, dtype=m.bool), x, x);
        x.masked_fill(m.zeros(2, 3, 4, dtype=m.bool), 1.);
        x.masked_scatter(m.zeros(2, 3, 4, dtype=m.bool), x); x.maximum(x); x.fmin(x);
        x.ldexp(m.zeros(4)); x.addcmul(x, x, value=0); x.addcdiv(x, x, value=0);
        x.xlogy(m.ones(4)*2.718281828); x.remainder(1e9); x.fmod(1e9); x.copysign(x);
        x.nextafter(x); i.gcd(m.zeros(4, dtype=m.int64)); i.bitwise_or(0);
        i.bitwise_not().bitwise_not(); s*1; s+0; -s; s.abs(); s.square(); x.addcmul(s, s)
    """,
    "matrices": """
        q.triu(-10); q.tril(10); q.triu(); q.tril(); m.linalg.matrix_power(q, 1);
        q.matrix_power(1); q.matrix_power(0); m.chain_matmul(q); m.linalg.multi_dot([q, q]);
        m.mm(q, m.eye(4)); q@m.eye(4); m.einsum('ij->ij', q); m.einsum('ij->ji', q);
        m.einsum('ijk', x); m.einsum('ij->', q); m.einsum('ii->i', q); m.einsum('...', x);
        m.einsum('i->i', v); m.kron(q, m.ones(1, 1)); m.kron(s, s); m.outer(v, v); m.dot(v, v);
        m.addmm(q, q, q, beta=1, alpha=0); m.addmv(v, q, v, alpha=0);
        m.baddbmm(x, x.new_zeros(2, 3, 1), x.new_zeros(2, 1, 4)); m.diag(q); m.diag(v);
        m.diag_embed(v); m.diagflat(s); m.diagflat(v); m.trace(q); m.inner(s, s); m.inner(v, v);
        m.tensordot(q, q, 0); m.tensordot(q, q, 1); m.linalg.diagonal(q); m.linalg.norm(s);
        m.linalg.vector_norm(s); m.linalg.inv(m.eye(4)); m.linalg.vecdot(v, v);
        m.linalg.cross(v[:3], v[:3]); m.vander(v, 1); m.cov(v[None]); m.corrcoef(v);
        m.linalg.matrix_norm(q, 1); m.renorm(q, 2, 0, 1e9); m.vdot(v, v); m.linalg.svdvals(q);
        m.matmul(v, q); m.matmul(q, v); m.matrix_exp(q*0); m.linalg.qr(m.eye(4))[0];
        m.linalg.cholesky(m.eye(4)); m.addbmm(q[:3], x.new_zeros(2, 3, 1), x.new_zeros(2, 1, 4))
    """,
    "positions": """
        v.gather(0, m.arange(4)); v.scatter(0, m.arange(0), v);
        v.index_add(0, m.arange(0), v[:0]); v.index_copy(0, m.arange(0), v[:0]);
        v.index_fill(0, m.arange(0), 1.); v.index_put((m.arange(0), ), v[:0]);
        v.put(m.arange(0), v[:0]); v.take(m.arange(4)); v.masked_select(m.ones(4, dtype=m.bool));
        m.masked_select(v, m.tensor(True)); v.scatter_add(0, m.arange(0), v); x.slice_scatter(x);
        x.select_scatter(x[0], 0, 0); q.diagonal_scatter(v);
        x.as_strided_scatter(x, x.shape, x.stride()); v.scatter_reduce(0, m.arange(0), v, 'sum');
        x.slice_scatter(x[:0], 0, 0, 0); v.nonzero(); m.argwhere(v); v.unfold(0, 1, 1);
        m.diff(v, 0); m.diff(v, n=0); v.index_reduce(0, m.arange(0), v[:0], 'prod');
        m.gradient(v)[0]; m.bucketize(v, v); m.diff(v)
    """,
    "copies": """
        m.empty_like(x); m.zeros_like(x); m.nn.Parameter(x); nn.Buffer(x); m.squeeze_copy(x);
        m.view_copy(x, (2, 3, 4)); m.expand_copy(x, (2, 3, 4)); m.permute_copy(x, (0, 1, 2));
        m.t_copy(q); m.unsqueeze_copy(x, 0); m.select_copy(x, 0, 0); m.slice_copy(x);
        m.alias_copy(x); m.detach_copy(x); m.as_strided_copy(x, (2, ), (1, )); m.diagonal_copy(q);
        m.transpose_copy(x, 0, 0); m.split_copy(x, 2)[0]; m.unbind_copy(x)[0];
        m.unfold_copy(x, 0, 1, 1); m.view_as_real_copy(z)
    """,
    "transforms": """
        m.special.expit(x); m.fft.fftshift(v[:1]); m.fft.fftshift(v); m.fft.ifftshift(v);
        m.fft.fft(v[:1]); m.fft.fftn(x, dim=()); m.complex(v, v*0); m.polar(v, v*0);
        m.view_as_complex(m.view_as_real(z)); m.clone(x); m.fft.fft(z, 1); m.bernoulli(m.ones(4));
        m.rrelu(x); m.quantile(v, 0.5); m.histc(v); m.cdist(q, q); m.pdist(q);
        m.cross(v[:3], v[:3], dim=0); m.squeeze(s); m.var_mean(v)[1]; m.std_mean(v)[1];
        m.frexp(v)[0]; m.nn.utils.parameters_to_vector([v]);
        m.nn.utils.rnn.pad_sequence([v], True); m.logit(v)
    """,
    "along_a_dim": """
        m.max(s, 0)[0]; m.max(q, 0)[0]; m.min(q, 0)[1]; q.median(0)[0]; q.mode()[0]; q.mode()[1];
        q.kthvalue(1)[0]; q.nanmedian(0)[0]; q.quantile(0.5, 0); q.sort()[0]; q.argmax(0);
        q.topk(1)[0]; q.unique(dim=0); s.gather(0, m.tensor([0]));
        s.index_select(0, m.tensor([0])); s.scatter(0, m.tensor(0), s);
        s.index_fill(0, m.tensor([0]), 1.); s.index_add(0, m.tensor([0]), s);
        s.index_copy(0, m.tensor([0]), s); s.put(m.tensor(0), s); s.take(m.tensor(0));
        s.masked_select(m.tensor(True)); s.clone()
    """,
}


def _arguments(m: Any) -> dict[str, Any]:
    def real(*shape: int) -> Any:
        count = int(np.prod(shape))
        return m.tensor((np.arange(count) * 0.37 - 1).reshape(shape).tolist(), dtype=m.float32)

    return {
        "x": real(2, 3, 4), "v": real(4), "s": m.tensor(1.5), "q": real(4, 4),
        "im": real(1, 4, 4, 4), "i": m.arange(1, 5), "si": m.tensor(3), "sb": m.tensor(True),
        "b": m.tensor([True, False, True, True]), "b3": m.ones(2, 3, 4, dtype=m.bool),
        "z": m.complex(real(4), real(4) + 1),
    }


def _memory(tensor: Any) -> int:
    if isinstance(tensor, torch.Tensor):
        return tensor.untyped_storage().data_ptr()
    return id(tensor._graphc_storage.root)


def _facts(m: Any, expression: str, compiled: bool) -> tuple[list[str], list[str], bool]:
    """Which arguments the result is, which it shares memory with, whether it is a view."""
    given = _arguments(m)
    names = {"m": m, "F": m.nn.functional, "nn": m.nn}
    function = eval(f"lambda {', '.join(given)}: {expression}", names)
    result = (graphc.compile(function) if compiled else function)(*given.values())
    shared = result.numel() > 0
    return (
        [name for name, value in given.items() if value is result],
        [name for name, value in given.items() if shared and _memory(value) == _memory(result)],
        result._is_view(),
    )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("group", list(EXPRESSIONS))
@pytest.mark.filterwarnings("ignore")
def test_identity(group: str, compiled: bool) -> None:
    wrong = []
    for text in EXPRESSIONS[group].split(";"):
        expression = " ".join(text.split())
        want = _facts(torch, expression, False)
        have = _facts(graphc, expression, compiled)
        # what PyTorch makes by a view of an internal tensor need not be one here
        internal = want[2] and not want[1]
        if have[:2] != want[:2] or (have[2] != want[2] and not internal):
            wrong.append(f"{expression}: {have}, not {want}")
    assert not wrong, "\n".join(wrong)


def test_a_result_without_gradients_may_be_written_to_with_them() -> None:
    """It is no view, so neither are the rules of views made under no_grad."""
    for t in (torch, graphc):
        x, w = t.ones(3), t.ones(6, requires_grad=True)
        with t.no_grad():
            y = x.repeat(2)
        y.mul_(w)
        y.sum().backward()
        assert w.grad.tolist() == [1.0] * 6


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(1, 4))
def test_what_is_written_before_and_after_an_overlap_is_met(before: int, after: int) -> None:
    """However often: no value that was read is taken for the one of now."""
    def write(x: Any, y: Any) -> Any:
        for _ in range(before):
            x.mul_(2)
        total = x.sum()
        for _ in range(after):
            y.neg_().sub_(1)
        return x * 1, total, x.reshape(-1) + 1

    def run(t: Any, function: Any) -> Any:
        b = t.arange(16.0).reshape(4, 4)
        return [r.tolist() for r in (*function(b[1:3, 1:3], b.diagonal()), b)]

    for dynamic in (False, True):
        compiled = graphc.compile(write, dynamic=dynamic)
        assert run(graphc, compiled) == run(torch, write)


VIEWS_WRITTEN: dict[str, Any] = {
    "a function": lambda z: z.sin_(), "bounds": lambda z: z.clamp_(-1, 7),
    "twice": lambda z: z.sin_().cos_(),
    "what was read before": lambda z: z.add_(z.exp().detach()).tanh_(),
}
PLACES: dict[str, Any] = {
    "rows": lambda b: b[1:3], "a block": lambda b: b[1:3, 1:3], "turned": lambda b: b.t(),
    "flat": lambda b: b.view(-1)[2:8], "whole": lambda b: b,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", VIEWS_WRITTEN)
@pytest.mark.filterwarnings("ignore:compiled:graphc.PerformanceWarning")
def test_an_argument_that_is_a_view_with_a_history_is_written(name: str, place: str) -> None:
    """A rule that reads what was there before has a copy of it."""
    def write(z: Any) -> Any:
        VIEWS_WRITTEN[name](z)
        return z.sum()

    found = []
    for t, function in ((torch, write), (graphc, write), (graphc, graphc.compile(write))):
        leaf = (t.arange(16.0).reshape(4, 4) / 7).requires_grad_()
        b = leaf * 1.5
        (function(PLACES[place](b)) * 2 + (b * b).sum()).backward()
        found.append(leaf.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5, atol=1e-5)
