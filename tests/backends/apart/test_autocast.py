"""autocast on a device that is not the CPU: torch's list for CUDA, result by result.

PyTorch's own answers come from tensors without memory that claim to lie on a GPU (FakeTensorMode),
which its build for CPUs dispatches as a GPU's.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.autocast_lists import CPU, GPU, NAMES, Policy

HERE = "apart"

Call = Callable[[Any, Any, Any], Any]
SQUARE = np.random.default_rng(0).uniform(0.2, 0.9, size=(4, 4)).astype(np.float32)
OTHER = np.random.default_rng(1).uniform(0.2, 0.9, size=(4, 4)).astype(np.float32)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
# which of the two tensors has autocast's dtype
MIXES = {"both half": (1, 1), "both full": (0, 0), "half and full": (1, 0)}


def _f(name: str, *more: Any, **options: Any) -> Call:
    """torch.nn.functional.NAME of both tensors."""
    return lambda t, a, b: getattr(t.nn.functional, name)(a, b, *more, **options)


def _one(name: str, *more: Any, **options: Any) -> Call:
    """The method NAME of the first tensor."""
    return lambda t, a, b: getattr(a, name)(*more, **options)


def _up(mode: str, rank: int) -> Call:
    return lambda t, a, b: t.nn.functional.interpolate(
        a.reshape(*(4, 4, 1, 1, 1)[: rank + 2]), scale_factor=2, mode=mode
    )


def _longs(t: Any, a: Any, *values: int) -> Any:
    return t.tensor(values or (0, 1, 2, 3), device=a.device)


def _row(x: Any) -> Any:
    return x.select(0, 0)


def _batch(x: Any) -> Any:
    return x.unsqueeze(0)


def _volume(x: Any) -> Any:
    return x.reshape(1, 1, 1, 4, 4)


def _small(x: Any) -> Any:
    return x.narrow(0, 0, 2).narrow(1, 0, 2).reshape(1, 1, 2, 2)


# by the dispatcher's names; without [index], for which PyTorch's build for CPUs asks for a GPU
CALLS: dict[str, Call] = {
    **{name: _one(name) for name in (
        "acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan sum prod"
    ).split()},
    **{name: _f(name) for name in (
        "hinge_embedding_loss huber_loss kl_div l1_loss mse_loss poisson_nll_loss smooth_l1_loss "
        "soft_margin_loss binary_cross_entropy_with_logits cosine_similarity "
        "binary_cross_entropy"
    ).split()},
    "addmm": lambda t, a, b: t.addmm(a, b, a), "mm": lambda t, a, b: a.mm(b),
    "matmul": lambda t, a, b: a @ b, "mv": lambda t, a, b: a.mv(_row(b)),
    "addmv": lambda t, a, b: t.addmv(_row(a), b, _row(a)),
    "addr": lambda t, a, b: t.addr(a, _row(b), _row(a)),
    "bmm": lambda t, a, b: t.bmm(_batch(a), _batch(b)),
    "baddbmm": lambda t, a, b: t.baddbmm(_batch(a), _batch(b), _batch(a)),
    "addbmm": lambda t, a, b: t.addbmm(a, _batch(b), _batch(a)),
    "chain_matmul": lambda t, a, b: t.chain_matmul(a, b, a),
    "linalg_multi_dot": lambda t, a, b: t.linalg.multi_dot([a, b, a]),
    "linalg_vecdot": lambda t, a, b: t.linalg.vecdot(a, b),
    "einsum": lambda t, a, b: t.einsum("ij,jk->ik", a, b),
    "linear": lambda t, a, b: t.nn.functional.linear(a, b, _row(a)),
    "conv1d": lambda t, a, b: t.nn.functional.conv1d(_batch(a), b.unsqueeze(2)),
    "conv1d padded": lambda t, a, b: t.nn.functional.conv1d(
        _batch(a), b.unsqueeze(2), padding="same"),
    "conv2d": lambda t, a, b: t.nn.functional.conv2d(a.reshape(1, 1, 4, 4), _small(b)),
    "conv3d": lambda t, a, b: t.nn.functional.conv3d(_volume(a), _volume(b)),
    "conv_tbc": lambda t, a, b: t.nn.functional.conv_tbc(_batch(a), _batch(b), _row(a)),
    "conv_transpose1d": lambda t, a, b: t.nn.functional.conv_transpose1d(_batch(a), b.unsqueeze(2)),
    "conv_transpose2d": lambda t, a, b: t.nn.functional.conv_transpose2d(
        a.reshape(1, 1, 4, 4), _small(b)),
    "conv_transpose3d": lambda t, a, b: t.nn.functional.conv_transpose3d(
        _volume(a), _volume(b)),
    "prelu": lambda t, a, b: t.nn.functional.prelu(a - 0.5, b.reshape(16).narrow(0, 0, 1)),
    "scaled_dot_product_attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(
        _batch(a), _batch(b), _batch(a)),
    "pow.Tensor_Scalar": lambda t, a, b: a**3, "pow.Tensor_Tensor": lambda t, a, b: a**b,
    "pow.Scalar": lambda t, a, b: 2**a, "reciprocal of a number": lambda t, a, b: 2 / a,
    "square": _one("square"), "softplus": lambda t, a, b: t.nn.functional.softplus(a),
    "layer_norm": lambda t, a, b: t.nn.functional.layer_norm(a, (4,), _row(b), _row(b)),
    "native_layer_norm": lambda t, a, b: t.native_layer_norm(a, (4,), _row(b), _row(b), 1e-5)[0],
    "rms_norm": lambda t, a, b: t.nn.functional.rms_norm(a, (4,), _row(b)),
    "group_norm": lambda t, a, b: t.nn.functional.group_norm(a, 2, _row(b), _row(b)),
    "frobenius_norm": lambda t, a, b: t.frobenius_norm(a, (0, 1)),
    "nuclear_norm": lambda t, a, b: t.nuclear_norm(a),
    "cosine_embedding_loss": lambda t, a, b: t.nn.functional.cosine_embedding_loss(
        a, b, t.ones_like(_row(b))),
    "nll_loss": lambda t, a, b: t.nn.functional.nll_loss(a, _longs(t, a)),
    "nll_loss2d": lambda t, a, b: t.nn.functional.nll_loss(
        a.reshape(4, 4, 1, 1), _longs(t, a).reshape(4, 1, 1)),
    "cross_entropy": lambda t, a, b: t.nn.functional.cross_entropy(a, _longs(t, a)),
    "margin_ranking_loss": lambda t, a, b: t.nn.functional.margin_ranking_loss(
        a, b, t.ones_like(b)),
    "multilabel_margin_loss": lambda t, a, b: t.nn.functional.multilabel_margin_loss(
        a, _longs(t, a).expand(4, 4)),
    "triplet_margin_loss": lambda t, a, b: t.nn.functional.triplet_margin_loss(a, b, a + b),
    "multilabel_soft_margin_loss": lambda t, a, b: t.nn.functional.multilabel_soft_margin_loss(
        a, b.round()),
    "dist": lambda t, a, b: t.dist(a, b), "pdist": lambda t, a, b: t.pdist(a),
    "cdist": lambda t, a, b: t.cdist(a, b), "renorm": _one("renorm", 2, 0, 0.1),
    "logsumexp": _one("logsumexp", 0),
    "upsample_nearest1d": _up("nearest", 1), "upsample_nearest2d": _up("nearest", 2),
    "upsample_nearest3d": _up("nearest", 3), "_upsample_nearest_exact2d": _up("nearest-exact", 2),
    "upsample_linear1d": _up("linear", 1), "upsample_bilinear2d": _up("bilinear", 2),
    "upsample_trilinear3d": _up("trilinear", 3), "upsample_bicubic2d": _up("bicubic", 2),
    "resize by areas": _up("area", 2),
    "prod.dim_int": _one("prod", 0), "sum.dim_IntList": _one("sum", (0, 1)),
    "sum of a dtype": lambda t, a, b: a.sum(0, dtype=t.float16),
    "sum of integers": lambda t, a, b: _longs(t, a).sum(),
    "softmax": _one("softmax", 0), "log_softmax": _one("log_softmax", 0),
    "softmax of a dtype": lambda t, a, b: t.nn.functional.softmax(a, 0, 3, t.float16),
    "cumprod": _one("cumprod", 0), "cumsum": _one("cumsum", 0),
    "linalg_vector_norm": lambda t, a, b: t.linalg.vector_norm(a),
    "linalg_matrix_norm": lambda t, a, b: t.linalg.matrix_norm(a, 1),
    "linalg_matrix_norm.str_ord": lambda t, a, b: t.linalg.matrix_norm(a),
    "linalg_norm": lambda t, a, b: t.linalg.norm(a),
    "norm.Scalar": _one("norm", 2), "norm.ScalarOpt_dim": _one("norm", 2, 0),
    "addcdiv": lambda t, a, b: t.addcdiv(a, b, b), "addcmul": lambda t, a, b: t.addcmul(a, b, a),
    "atan2": lambda t, a, b: t.atan2(a, b),
    "bilinear": lambda t, a, b: t.nn.functional.bilinear(a, b, _batch(b)),
    "cross": lambda t, a, b: t.cross(a.narrow(1, 0, 3), b.narrow(1, 0, 3), 1),
    "dot": lambda t, a, b: t.dot(_row(a), _row(b)),
    "vdot": lambda t, a, b: t.vdot(_row(a), _row(b)),
    "inner": lambda t, a, b: t.inner(a, b),
    "index_put": lambda t, a, b: t.index_put(a, (_longs(t, a),), b),
    "tensordot": lambda t, a, b: t.tensordot(a, b, 1),
    "scatter_add": lambda t, a, b: t.scatter_add(
        a, 0, _longs(t, a).unsqueeze(0), b.narrow(0, 0, 1)),
    # on no list
    **{f"{name}, as it is": _one(name) for name in (
        "sin cos tanh sqrt relu sigmoid erf exp2 mean std var abs logit sinc trace"
    ).split()},
    **{f"{name}, as it is": (lambda n: lambda t, a, b: getattr(t.nn.functional, n)(a))(name)
       for name in "gelu silu elu celu selu mish logsigmoid hardswish softsign".split()},
    "add, as it is": lambda t, a, b: a + b, "cat, as it is": lambda t, a, b: t.cat([a, b]),
    "max_pool2d, as it is": lambda t, a, b: t.nn.functional.max_pool2d(_batch(a), 2),
    "logaddexp, as it is": lambda t, a, b: t.logaddexp(a, a),
    "exp_, as it is": lambda t, a, b: a.clone().exp_(),
    "addmm_, as it is": lambda t, a, b: a.clone().addmm_(a, a),
    "mm with out": lambda t, a, b: t.mm(a, a, out=t.empty_like(a)),
}
# of torch's list: what graphc's names do not reach, or PyTorch without a GPU cannot answer
ELSEWHERE = {
    **dict.fromkeys(
        ("_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose",
         "_scaled_dot_product_flash_attention"), "below the functions that users call"),
    **dict.fromkeys(
        ("_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "gru_cell", "lstm_cell", "rnn_relu_cell",
         "rnn_tanh_cell"), "test_recurrent_modules"),
    **dict.fromkeys(("grid_sampler", "multi_margin_loss"), "test_what_torch_cannot_answer"),
    **dict.fromkeys(
        ("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d",
         "_upsample_nearest_exact3d"), "a mode of interpolate, whose other modes are here"),
}


def _answers(name: str, mix: str) -> Any:
    """The dtype of PyTorch's result on a GPU, or None for an error."""
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        kinds = [torch.float16 if half else torch.float32 for half in MIXES[mix]]
        a, b = (torch.empty(4, 4, device="cuda", dtype=kind) for kind in kinds)
        torch.set_autocast_enabled("cuda", True)
        try:
            return str(CALLS[name](torch, a, b).dtype)
        except RuntimeError as error:
            assert "not linked" not in str(error), "this call does not do without a GPU"
            return None
        finally:
            torch.set_autocast_enabled("cuda", False)


def _given(mix: str, device: str) -> list[Any]:
    kinds = [graphc.float16 if half else graphc.float32 for half in MIXES[mix]]
    return [
        graphc.from_numpy(x).to(kind).to(device).requires_grad_()
        for x, kind in zip((SQUARE, OTHER), kinds, strict=True)
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's; runs in other modules, too
@pytest.mark.parametrize("name", CALLS)
def test_results_have_the_dtypes_of_torch(name: str) -> None:
    for mix in MIXES:
        want = _answers(name, mix)
        a, b = _given(mix, HERE)
        given = (a.detach(), b.detach()) if "out" in name or want is None else (a, b)
        with graphc.autocast(HERE):
            if want is None:
                with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
                    CALLS[name](graphc, *given)
                continue
            found = CALLS[name](graphc, *given)
        assert str(found.dtype) == want, mix
        if mix == "both half" and found.requires_grad:
            _check_values(name, found, (a, b))


def _check_values(name: str, found: Any, given: tuple[Any, Any]) -> None:
    """Those of float32 on the CPU, and the gradients, which have their inputs' dtypes."""
    full = [x.detach().cpu().float().requires_grad_() for x in given]
    value = CALLS[name](graphc, *full)
    assert _close(found, value), (found, value)
    found.backward(graphc.ones_like(found))
    value.backward(graphc.ones_like(value))
    for x, y in zip(given, full, strict=True):
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            assert x.grad.dtype is x.dtype and _close(x.grad, y.grad), (x.grad, y.grad)


def test_what_torch_cannot_answer() -> None:
    """Where its build for CPUs would ask a GPU for something."""
    for mix, kind in zip(MIXES, (graphc.float16, graphc.float32, graphc.float32), strict=True):
        a, b = _given(mix, HERE)
        with graphc.autocast(HERE):
            places = b.reshape(1, 2, 4, 2)
            found = graphc.nn.functional.grid_sample(
                a.reshape(1, 1, 4, 4), places, align_corners=False
            )
            assert found.dtype is kind
            loss = graphc.nn.functional.multi_margin_loss(a, _longs(graphc, a))
            assert loss.dtype is graphc.float32
        loss.backward()
        assert a.grad.dtype is a.dtype


def _close(found: Any, want: Any) -> bool:
    a, b = (x.detach().cpu().float().numpy() for x in (found, want))
    return a.shape == b.shape and np.allclose(a, b, rtol=2e-2, atol=2e-2)


def test_every_function_on_the_list_of_torch_is_tried() -> None:
    torch = pytest.importorskip("torch")
    names = {
        name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names()
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
    }
    tried = {*CALLS, *(name.split(".")[0] for name in CALLS), *ELSEWHERE}
    missing = {n for n in names if n not in tried and n.split(".")[0] not in tried}
    assert not missing and not ELSEWHERE.keys() - {n.split(".")[0] for n in names}


def test_every_name_on_the_lists_is_a_function() -> None:
    """That reads them by that name."""
    graphc.special, graphc.masked  # noqa: B018
    spaces = [graphc, graphc.nn.functional, graphc.Tensor]
    prefixed = {
        "linalg_": graphc.linalg, "fft_": graphc.fft, "special_": graphc.special,
        "masked_": graphc.masked,
    }
    inside = {"upsample": graphc.nn.functional.resize._upsampled,
              "recurrent_cell": graphc.nn.modules.rnn.recurrent_cell,
              "recurrent_layers": graphc.nn.LSTM.recurrent_layers,
              "lstm_layers": graphc.nn.LSTM.lstm_layers,
              **{name: graphc.nn.functional.padding._LISTED[mode, count]
                 for mode, each in (("reflect", "reflection"), ("replicate", "replication"))
                 for count in (1, 2, 3) if (name := f"{each}_pad{count}d") in NAMES},
              "reciprocal": graphc.Tensor.reciprocal}
    for name in NAMES:
        places = [getattr(space, name, None) for space in spaces] + [inside.get(name)] + [
            getattr(space, name.removeprefix(prefix), None)
            for prefix, space in prefixed.items() if name.startswith(prefix)
        ]
        assert name in {_listed(place) for place in places}, name
    assert len(CPU) > 60 and set(GPU.values()) == set(Policy)


@pytest.mark.parametrize("name", [
    "exp", "lu_solve", "mvlgamma", "native_layer_norm", "special.entr", "masked.sum", "linalg.norm",
    "fft.rfft", "nn.functional.softplus",
])
def test_listed_functions_pickle(name: str) -> None:
    function = operator.attrgetter(name)(graphc)
    assert _listed(function) and pickle.loads(pickle.dumps(function)) is function


def _listed(function: Any) -> str:
    while function is not None and not hasattr(function, "autocast"):
        function = getattr(function, "__wrapped__", None)
    return getattr(function, "autocast", "")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("compiled", [False, True])
def test_recurrent_modules(kind: str, compiled: bool) -> None:
    """All is cast, states too: torch's _cudnn_rnn, and its cells."""
    graphc.manual_seed(0)
    module = getattr(graphc.nn, kind)(3, 4)
    x = graphc.ones(2, 3) if "Cell" in kind else graphc.ones(5, 2, 3)
    want = _leaves(module(x))
    there = module.to(HERE)
    run = graphc.compile(there) if compiled else there
    for given in (x.to(HERE), x.to(HERE).half()):
        with graphc.autocast(HERE):
            found = _leaves(run(given))
        assert {y.dtype for y in found} == {graphc.float16}
        assert all(map(_close, found, want))
    sum(y.float().sum() for y in found).backward()
    assert {p.grad.dtype for p in there.parameters()} == {graphc.float32}


def _leaves(value: Any) -> list[Any]:
    return [x for y in value for x in _leaves(y)] if isinstance(value, tuple) else [value]


def test_the_modes_of_two_devices() -> None:
    """autocast of one device leaves the other's tensors alone; both may be on."""
    here, cpu = graphc.ones(3, 3, device=HERE), graphc.ones(3, 3)
    with graphc.autocast(HERE):
        assert (here @ here).dtype is graphc.float16 and (cpu @ cpu).dtype is graphc.float32
        with graphc.autocast("cpu"):
            assert (here @ here).dtype is graphc.float16 and (cpu @ cpu).dtype is graphc.bfloat16
            assert here.half().exp().dtype is graphc.float32
            assert cpu.half().exp().dtype is graphc.float16  # on the GPU's list alone
            with graphc.autocast(HERE, enabled=False):
                assert (here @ here).dtype is graphc.float32
                assert (cpu @ cpu).dtype is graphc.bfloat16
            with graphc.autocast(HERE, dtype=graphc.bfloat16):
                assert graphc.get_autocast_dtype(HERE) is graphc.bfloat16
                assert (here @ here).dtype is graphc.bfloat16
            assert (here @ here).dtype is graphc.float16
    with graphc.autocast("cpu"):
        assert (here @ here).dtype is graphc.float32
        assert here.half().exp().dtype is graphc.float16
    assert not graphc.is_autocast_enabled(HERE) and not graphc.is_autocast_enabled("cpu")


def test_half_of_another_kind_is_an_error_where_the_widest_is_taken() -> None:
    x = graphc.ones(3, device=HERE)
    with graphc.autocast(HERE), pytest.raises(RuntimeError, match="Unexpected floating Scalar"):
        graphc.dot(x.bfloat16(), x.half())


def test_an_error_leaves_autocast_on() -> None:
    x = graphc.ones(3, 3, device=HERE)
    with graphc.autocast(HERE):
        with pytest.raises(RuntimeError):
            x @ graphc.ones(4, 4, device=HERE)
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            graphc.nn.functional.binary_cross_entropy(x, x)
        assert (x @ x).dtype is graphc.float16
    assert graphc.nn.functional.binary_cross_entropy(x, x).item() == 0


def _step(model: Any, x: Any, target: Any, device: str) -> Any:
    with graphc.autocast(device):
        out = model(x)
        loss = graphc.nn.functional.cross_entropy(out, target)
    loss.backward()
    return out.detach(), loss.detach(), [p.grad for p in model.parameters()]


def test_compiled_functions_are_guarded() -> None:
    """A mode is another version; gradients have their parameters' dtypes."""
    run = graphc.compile(lambda x: (x @ x).softmax(0).sum())
    x = graphc.ones(3, 3, device=HERE).half()
    assert run(x).dtype is graphc.float16
    with graphc.autocast(HERE):
        assert run(x).dtype is graphc.float32
    with graphc.autocast("cpu"):
        assert run(x).dtype is graphc.float16
    graphc.manual_seed(0)
    model = graphc.nn.Sequential(
        graphc.nn.Linear(4, 8), graphc.nn.LayerNorm(8), graphc.nn.GELU(), graphc.nn.Linear(8, 3)
    ).to(HERE)
    data, target = graphc.randn(6, 4).to(HERE), graphc.tensor([0, 1, 2] * 2).to(HERE)
    eager = _step(model, data, target, HERE)
    model.zero_grad()
    again = graphc.compile(_step)(model, data, target, HERE)
    assert eager[0].dtype is again[0].dtype is graphc.float16
    assert eager[1].dtype is again[1].dtype is graphc.float32
    for a, b in zip((eager[1], *eager[2]), (again[1], *again[2]), strict=True):
        assert a.dtype is b.dtype is graphc.float32 and _close(a, b)
