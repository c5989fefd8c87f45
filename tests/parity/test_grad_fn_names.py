"""grad_fn prints as torch's does: `tensor(0.3, grad_fn=<MseLossBackward0>)`."""

import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import graphc

EXPRESSIONS = """
x[0, 0]
x[0]
x[:, 0]
x[0, 1:]
x[1:, 0]
x[..., 0]
x[None]
x[:, None]
x[0, None]
x[0, :, None]
x[[0, 1]]
x[torch.tensor([0])]
x[x > 0]
x[0, [1, 2]]
x[:]
x[...]
x[::2]
x[-1]
x[0, 0, 0]
x[:, :, 1:3]
x[True]
x.unbind(0)[0]
x.split(1)[0]
x.chunk(2)[0]
x.sum()
x.sum(0)
x.mean()
x.mean(1)
x.max()
x.max(0)[0]
x.amax(0)
x.transpose(0, 1)
x.permute(2, 0, 1)
x.view(-1)
x.reshape(-1)
x.reshape(5, 10)
x.transpose(0, 1).reshape(-1)
x.flatten()
x.flatten(1)
x.squeeze()
x.unsqueeze(0)
x.expand(3, 2, 5, 5)
x.expand_as(x)
x.repeat(1, 1, 2)
x.contiguous()
x.clone()
x.detach()
x.float()
x.double()
x.to(torch.float64)
x.half()
-x
x + 1
1 + x
x - 1
1 - x
x * 2
2 * x
x / 2
2 / x
x ** 2
2 ** x
x ** y
x @ y
x @ x.transpose(1, 2)
y @ y
y @ y[0]
y[0] @ y[0]
y.mm(y)
torch.bmm(x, x)
torch.einsum('bij,jk->bik', x, y)
x.abs()
x.exp()
x.log()
x.sqrt()
x.rsqrt()
x.sin()
x.tanh()
x.sigmoid()
x.relu()
x.clamp(0, 1)
x.clamp(min=0)
x.clamp_min(0)
x.softmax(-1)
x.log_softmax(-1)
x.norm()
x.norm(dim=1)
x.std()
x.var(0)
x.prod()
x.prod(0)
x.cumsum(0)
x.sort()[0]
x.topk(2)[0]
x.gather(0, torch.zeros(1, 5, 5, dtype=torch.long))
x.index_select(0, torch.tensor([0]))
x.masked_fill(x > 0, 0.0)
torch.where(x > 0, x, 0.0)
torch.where(x > 0, x, -x)
torch.cat([x, x])
torch.stack([x, x])
x.roll(1, 0)
x.flip(0)
x.tril()
x.triu()
x.diagonal(dim1=1, dim2=2)
y.trace()
torch.outer(y[0], y[0])
torch.dot(y[0], y[0])
y.inverse()
y.det()
torch.minimum(x, y)
torch.maximum(x, y)
x.logsumexp(0)
x.round()
x.floor()
x.sign()
x.reciprocal()
x.square()
x.pow(3)
x.neg()
F.gelu(x)
F.silu(x)
F.leaky_relu(x)
F.elu(x)
F.softplus(x)
F.linear(x, y)
F.linear(x, y, y[0])
F.linear(y, y, y[0])
F.mse_loss(x, x * 0)
F.l1_loss(x, x * 0)
F.cross_entropy(y, torch.zeros(5, dtype=torch.long))
F.nll_loss(y, torch.zeros(5, dtype=torch.long))
F.binary_cross_entropy_with_logits(x, x.detach())
F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid())
F.smooth_l1_loss(x, x * 0)
F.kl_div(x, x.detach())
F.layer_norm(x, (5,))
F.batch_norm(x, None, None, training=True)
F.dropout(x)
F.embedding(torch.tensor([0, 1]), y)
F.conv1d(x, torch.randn(3, 5, 2))
F.conv2d(x[None], torch.randn(3, 2, 2, 2))
F.max_pool2d(x, 2)
F.avg_pool2d(x, 2)
F.adaptive_avg_pool2d(x, 1)
F.pad(x, (1, 1))
F.interpolate(x[None], scale_factor=2)
F.normalize(x)
F.cosine_similarity(x, x, -1)
F.one_hot(torch.tensor([1])).float() * y[0, 0]
F.scaled_dot_product_attention(x, x, x)
F.unfold(x[None], 2)
F.glu(x[..., :4])
F.hardtanh(x)
F.relu6(x)
F.mish(x)
F.selu(x)
F.logsigmoid(x)
F.group_norm(x[None], 1)
F.instance_norm(x[None])
F.pixel_shuffle(torch.randn(1, 4, 2, 2, requires_grad=True), 2)
torch.lerp(x, x * 2, 0.5)
torch.addmm(y, y, y)
torch.addcmul(y, y, y)
torch.baddbmm(x, x, x)
x.median()
x.min()
x.view_as(x)
x.type(torch.float64)
x.nan_to_num()
torch.atan2(x, x)
torch.cdist(y, y)
torch.matmul(x, y[0])
(x * 1).add_(1)
(x * 1).relu_()
(x * 1).masked_fill_(x > 0, 1)
x.movedim(0, 1)
x.unfold(2, 2, 1)
x.narrow(0, 0, 1)
x.swapaxes(0, 1)
x.hsplit(5)[0]
x.tile(2)
x.repeat_interleave(2)
torch.logaddexp(x, x)
x.erf()
x.log1p()
x.expm1()
x.cos()
x.argmax()
x @ x
F.celu(x)
F.rrelu(x)
F.prelu(x, torch.ones(1))
F.prelu(x, v)
F.threshold(x, 0, 1)
F.hardswish(x)
F.hardsigmoid(x)
F.softshrink(x)
F.hardshrink(x)
F.tanhshrink(x)
F.softsign(x)
F.softmin(x, -1)
F.gumbel_softmax(y)
F.huber_loss(x, x * 0)
F.soft_margin_loss(x, x.detach())
F.mse_loss(x, x * 0, reduction='sum')
F.mse_loss(x, x * 0, reduction='none')
F.cross_entropy(i4, torch.zeros(2, 8, 8, dtype=torch.long))
F.cross_entropy(y, z, label_smoothing=0.1)
F.multi_margin_loss(y, z)
F.multilabel_margin_loss(y, z[None].expand(5, 5))
F.multilabel_soft_margin_loss(y, y.detach())
F.margin_ranking_loss(v, v * 2, v.detach().sign())
F.hinge_embedding_loss(v, v.detach().sign())
F.cosine_embedding_loss(y, y * 2, v.detach().sign())
F.triplet_margin_loss(y, y * 2, y * 3)
F.poisson_nll_loss(v, v.detach())
F.gaussian_nll_loss(v, v.detach(), v.detach() + 1)
F.binary_cross_entropy(v, v.detach())
F.avg_pool1d(x, 2)
F.avg_pool2d(i4, 2)
F.avg_pool3d(i4[None], 2)
F.max_pool1d(x, 2)
F.max_pool2d(i4, 2)
F.max_pool3d(i4[None], 2)
F.adaptive_avg_pool1d(x, 2)
F.adaptive_avg_pool2d(i4, 3)
F.adaptive_avg_pool2d(i4, 1)
F.adaptive_avg_pool3d(i4[None], 1)
F.adaptive_avg_pool3d(i4[None], 2)
F.adaptive_max_pool2d(i4, 3)
F.adaptive_max_pool1d(x, 3)
F.max_unpool2d(*F.max_pool2d(i4, 2, return_indices=True), 2)
F.interpolate(i4, scale_factor=2, mode='bilinear')
F.interpolate(i4, scale_factor=2, mode='bicubic')
F.interpolate(i4, scale_factor=2, mode='area')
F.interpolate(i4, scale_factor=2, mode='nearest-exact')
F.interpolate(x, scale_factor=2, mode='linear')
F.interpolate(x, scale_factor=2)
F.interpolate(i4[None], scale_factor=2)
F.interpolate(i4[None], scale_factor=2, mode='trilinear')
F.pad(i4, (1, 1, 1, 1), mode='reflect')
F.pad(i4, (1, 1, 1, 1), mode='replicate')
F.pad(x, (1, 1), mode='reflect')
F.scaled_dot_product_attention(i4, i4, i4)
F.scaled_dot_product_attention(i4, i4, i4, is_causal=True)
F.scaled_dot_product_attention(i4, i4, i4, dropout_p=0.1)
F.fold(F.unfold(i4, 2), (8, 8), 2)
F.conv_transpose2d(i4, torch.randn(3, 2, 2, 2))
F.conv2d(i4, torch.randn(3, 3, 2, 2), torch.randn(3))
F.bilinear(v[None], v[None], torch.randn(2, 5, 5))
F.instance_norm(i4)
F.batch_norm(i4, torch.zeros(3), torch.ones(3))
F.rms_norm(x, (5,))
F.local_response_norm(i4, 2)
F.cosine_similarity(x, x * 2, -1)
F.pairwise_distance(y, y * 2)
F.pdist(y)
F.pixel_unshuffle(i4, 2)
F.affine_grid(torch.zeros(1, 2, 3, requires_grad=True), (1, 1, 2, 2))
F.alpha_dropout(x, 0.5, True)
F.dropout2d(i4, 0.5, True)
F.dropout(x, 0.5, True)
x.renorm(2, 0, 1.0)
x.take_along_dim(torch.zeros(1, 5, 5, dtype=torch.long), 0)
x.scatter_add(0, torch.zeros(1, 5, 5, dtype=torch.long), x)
x.index_add(0, torch.tensor([0]), x[:1])
x.index_copy(0, torch.tensor([0]), x[:1])
x.index_fill(0, torch.tensor([0]), 1.0)
x.masked_select(x > 0)
x.masked_scatter(x > 0, x)
torch.where(x > 0, 0.0, x)
x.flatten(0, 1)
x.unflatten(0, (1, 2))
x.kthvalue(2)[0]
x.mode()[0]
x.median(1)[0]
x.nanmedian()
x.cummax(0)[0]
x.cumprod(0)
x.logcumsumexp(0)
torch.var_mean(x)[0]
torch.std_mean(x)[1]
x.nansum()
x.nanmean()
x.amin()
x.aminmax()[0]
x.min(0)[0]
x.argmin().float()
x.minimum(x * 2)
x.fmod(2)
x.remainder(2)
x % 2
x.true_divide(2)
x.hypot(x)
x.trunc()
x.ceil()
x.erfinv()
x.lgamma()
x.digamma()
x.exp2()
x.sinh()
x.asin()
x.acosh()
x.atan()
x.sinc()
x.logit()
x.i0()
x.rad2deg()
x.float_power(2)
x.addcdiv(x, x)
x.addcmul(x, x)
y.addr(v, v)
y.addbmm(x, x)
torch.tensordot(x, y, 1)
torch.einsum('ij,jk', y, y)
torch.einsum('i,i->', v, v)
torch.einsum('bhqd,bhkd->bhqk', i4, i4)
torch.kron(y, y)
torch.cross(x[..., :3], x[..., :3], -1)
torch.linalg.norm(y)
torch.linalg.vector_norm(y)
torch.linalg.matrix_norm(y)
y.norm(p=1)
y.norm('fro')
torch.dist(y, y * 2)
torch.linalg.cholesky(y @ y.T + 5 * torch.eye(5))
torch.linalg.eigh(y @ y.T)[0]
torch.linalg.svd(y)[1]
torch.linalg.qr(y)[0]
torch.logdet(y @ y.T)
torch.linalg.slogdet(y)[1]
torch.linalg.pinv(y)
torch.matrix_exp(y)
y.matrix_power(3)
torch.vstack([y, y])
torch.hstack([y, y])
torch.dstack([y, y])
torch.column_stack([y, y])
torch.broadcast_to(y, (2, 5, 5))
torch.atleast_3d(y)
torch.meshgrid(v, v, indexing='ij')[0]
torch.cartesian_prod(v, v)
torch.combinations(v)
torch.block_diag(y, y)
torch.diag_embed(v)
torch.diagflat(v)
torch.diff(v)
torch.cov(y)
torch.rot90(y)
torch.fliplr(y)
torch.swapaxes(y, 0, 1)
torch.t(y)
y.T
y.mT
y.H
x.unsqueeze(0).squeeze(0)
x.expand(2, 2, 5, 5)
x.split([2, 3], 1)[0]
x.tensor_split(2, 1)[0]
x.unbind()[0]
x.view(2, 25)
x.real
x.resolve_conj()
torch.view_as_complex(i4.reshape(2, 3, 32, 2))
torch.complex(y, y).abs()
torch.fft.fft(y).real
torch.fft.rfft(y)
y.repeat_interleave(2, 0)
y.roll(1)
y.index_put((torch.tensor([0]),), v)
y.clone().index_put_((torch.tensor([0]),), v)
y.type_as(x)
y.to(torch.bfloat16)
y.clone().sub_(1)
y.clone().mul_(y)
y.clone().div_(2)
y.clone().pow_(2)
y.clone().exp_()
y.clone().clamp_(0, 1)
y.clone().sigmoid_()
y.clone().tanh_()
y.clone().neg_()
y.clone().index_fill_(0, z[:1], 1.0)
y.clone().lerp_(y, 0.5)
y.clone().t_()
y.clone().transpose_(0, 1)
y.clone().swapaxes_(0, 1)
y.clone().unsqueeze_(0)
y.clone().squeeze_()
y[None].clone().squeeze_(0)
y[None].clone().squeeze_((0, 1))
y[None].squeeze((0, 1))
y.clone().as_strided_((2, 2), (1, 2))
F.pad(x, (1, 1), mode="circular")
F.embedding_bag(z[None], y)
F.embedding_bag(z[None], y, mode="max")
F.grid_sample(i4, torch.zeros(2, 2, 2, 2))
F.grid_sample(i4[None].expand(2, 2, 3, 8, 8), torch.zeros(2, 2, 2, 2, 3), mode="nearest")
y.clone().addcmul_(y, y)
nn.LSTM(5, 4, batch_first=True)(x)[0]
nn.LSTM(5, 4)(x)[1][0]
nn.LSTMCell(5, 4)(y)[0]
nn.GRUCell(5, 4)(y)
nn.MultiheadAttention(5, 1)(x, x, x)[0]
nn.TransformerEncoderLayer(5, 1, 8)(x)
nn.Linear(5, 2)(x)
nn.Linear(5, 2)(y)
nn.Linear(5, 2)(v)
nn.Linear(5, 2, bias=False)(y)
nn.Linear(5, 2, bias=False)(x)
nn.BatchNorm1d(5)(y)
nn.LayerNorm(5)(y)
nn.GroupNorm(1, 3)(i4)
nn.Flatten()(i4)
nn.Softmax(-1)(y)
nn.CosineSimilarity()(y, y * 2)
""".strip().splitlines()


def operands(m: Any) -> dict[str, Any]:
    m.manual_seed(0)
    return {
        "torch": m, "F": m.nn.functional, "nn": m.nn,
        "x": m.rand(2, 5, 5, requires_grad=True), "y": m.rand(5, 5, requires_grad=True),
        "v": m.rand(5, requires_grad=True), "i4": m.rand(2, 3, 8, 8, requires_grad=True),
        "z": m.zeros(5, dtype=m.long),
    }


def names(m: Any, expression: str) -> list[Any]:
    """Of the first call and of the second, which eager mode may recall."""
    found = []
    for _ in range(2):
        node = eval(expression, operands(m)).grad_fn
        found.append(node and type(node).__name__)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_named_as_torch(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert names(graphc, expression) == names(torch, expression)


def reached(node: Any) -> list[Any]:
    """Names of a node and of what comes before it, without the weight's transpose, which is no
    node here."""
    if node is None:
        return ["nothing"]
    before = [reached(n) for n, _ in node.next_functions]
    return before[0] if node.name() == "TBackward0" else [node.name(), *before]


@pytest.mark.parametrize("expression", """
y.mul(2).mean()
y.sum(1).mean()
(y * y).mean(1, keepdim=True)
F.mse_loss(y * 2, y.detach())
F.mse_loss(y.detach(), y.sum(0, keepdim=True).expand(5, 5), reduction='sum')
F.mse_loss(y.exp(), y.detach(), reduction='none')
F.mse_loss(nn.Linear(5, 2)(y).relu(), torch.zeros(5, 2))
F.l1_loss(y * 2, y.detach())
nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))(y)
torch.addmm(y @ y, y.exp(), y)
""".strip().splitlines())
def test_what_comes_before_is_torch_s(expression: str) -> None:
    # it may be recalled: as one node, where torch has one
    for _ in range(1 if "l1_loss" in expression else 3):
        have, want = (reached(eval(expression, operands(m)).grad_fn) for m in (graphc, torch))
        assert have == want


def test_the_node_of_an_argument_keeps_its_name() -> None:
    x = graphc.ones(3, requires_grad=True)
    y = x.exp()
    for same in (
        graphc.nn.functional.dropout(y, training=False), y.contiguous(), y.float(),
            ):
        assert type(same.grad_fn).__name__ == "ExpBackward0"
