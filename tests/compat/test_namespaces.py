"""torch's smaller namespaces: what they answer, do and refuse, compared with PyTorch."""

import importlib
import inspect
import math
import pkgutil
import subprocess
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.utils._pytree
from torch.testing import assert_close as real_assert_close

import graphc
import graphc.utils._pytree
from graphc.testing import assert_close

Pair = namedtuple("Pair", "a b")


def close_cases(t):
    nan, ones = float("nan"), t.ones(2)
    return [
        (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 4]), {}),
        (t.tensor(1.0), t.tensor(2.0), {}), (1.0, 2.0, {}), (1, 2, {}), (True, False, {}),
        ([ones], [t.zeros(2)], {}), ({"a": ones}, {"b": ones}, {}), ([1.0, 2.0], [1.0], {}),
        ({"a": [ones, t.ones(1)]}, {"a": [ones, t.zeros(1)]}, {}), (ones, t.ones(3), {}),
        (ones, ones.double(), {}), ("a", "b", {}), (None, None, {}), (1, 1.0, {}),
        (t.tensor([nan]), t.tensor([nan]), {}),
        (t.tensor([nan]), t.tensor([nan]), {"equal_nan": True}),
        (ones, ones * 1.5, {"rtol": 0.1}), (ones, ones * 1.5, {"rtol": 0.1, "atol": 0}),
        (ones, ones * 1.5, {"rtol": 0, "atol": 0}), (ones, ones * 1.5, {"msg": "mine"}),
        (ones, ones * 1.5, {"msg": lambda text: "mine" + text}),
        (t.ones(2, 3), t.ones(3, 2).t(), {"check_stride": True}), (ones * math.inf, ones, {}),
        (np.ones(2), np.ones(2) * 2, {}), (t.tensor([True]), t.tensor([False]), {}),
        (t.zeros(0), t.zeros(0), {}), (ones.bfloat16(), ones.bfloat16() * 2, {}),
        (t.ones(2, 2), t.ones(2, 2) + 1e-6, {}),
    ]


def outcome(function, have, want, options):
    try:
        function(have, want, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "close"


def test_assert_close_says_what_torch_says():
    for real, mine in zip(close_cases(torch), close_cases(graphc), strict=True):
        assert outcome(assert_close, *mine) == outcome(real_assert_close, *real)


TREES = [
    1, [1, 2], (1, [2, {"b": 3, "a": 4}]), {"x": None}, OrderedDict(b=1, a=(2,)), [],
    Pair(1, [2]), {"k": [Pair(1, 2), ()]},
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_pytree(tree):
    mine, real = graphc.utils._pytree, torch.utils._pytree
    leaves, spec = mine.tree_flatten(tree)
    want, real_spec = real.tree_flatten(tree)
    assert leaves == want and mine.tree_unflatten(leaves, spec) == tree
    counts = ("num_leaves", "num_nodes", "num_children")
    assert [getattr(spec, n) for n in counts] == [getattr(real_spec, n) for n in counts]
    assert mine.tree_map(lambda v: [v], tree) == real.tree_map(lambda v: [v], tree)
    assert spec == mine.tree_structure(tree) and hash(spec) == hash(mine.tree_structure(tree))
    paths = mine.tree_map_with_path(lambda path, v: mine.keystr(path), tree)
    assert paths == real.tree_map_with_path(lambda path, v: real.keystr(path), tree)
    assert mine.tree_map_only(int, lambda v: -v, tree) == real.tree_map_only(
        int, lambda v: -v, tree
    )


def test_pytree_of_a_class_and_of_any_depth():
    mine = graphc.utils._pytree

    class Box:
        def __init__(self, value):
            self.value = value

    mine.register_pytree_node(Box, lambda box: ([box.value], None), lambda v, _: Box(*v))
    try:
        assert mine.tree_map(lambda v: v + 1, [Box(1)])[0].value == 2
        with pytest.raises(ValueError, match="already registered"):
            mine.register_pytree_node(Box, None, None)
    finally:
        mine._deregister_pytree_node(Box)
    deep = []
    for _ in range(5000):
        deep = [deep]
    leaves, spec = mine.tree_flatten(deep)
    assert leaves == [] and spec.num_nodes == 5001
    with pytest.raises(ValueError, match="holds 2 items"):
        mine.tree_unflatten([1], mine.tree_structure([1, 2]))


SIGNATURES = """
    jit.trace jit.freeze hub.load_state_dict_from_url hub.download_url_to_file hub.load hub.list
    hub.help hub.set_dir hub.get_dir
    testing.assert_close nn.parallel.scatter nn.parallel.gather nn.parallel.replicate
    nn.parallel.parallel_apply nn.parallel.data_parallel nn.DataParallel backends.cudnn.flags
    backends.cuda.sdp_kernel profiler.profile library.custom_op compiler.disable
    utils._pytree.tree_map utils._pytree.register_pytree_node
""".split()


@pytest.mark.parametrize("name", SIGNATURES)
def test_argument_names_are_torchs(name):
    def arguments(package):
        module, _, leaf = f"{package}.{name}".rpartition(".")
        found = getattr(importlib.import_module(module), leaf)
        return [p.name for p in inspect.signature(found).parameters.values()]

    assert arguments("graphc") == arguments("torch")


def test_backend_flags_can_be_set():
    flags = graphc.backends
    for name in ("cudnn", "mkldnn", "mkl", "mps", "openmp"):
        assert getattr(flags, name).is_available() is False
    assert flags.cuda.matmul.allow_tf32 is False and flags.cuda.flash_sdp_enabled()
    before = flags.cudnn.benchmark
    with flags.cudnn.flags(enabled=False, benchmark=not before):
        assert flags.cudnn.benchmark is not before and not flags.cudnn.enabled
    assert flags.cudnn.benchmark is before and flags.cudnn.enabled
    with flags.__allow_nonbracketed_mutation():
        flags.cudnn.benchmark = before
    assert not flags.flags_frozen()
    with flags.cuda.sdp_kernel(enable_flash=False):
        assert not flags.cuda.flash_sdp_enabled()
    with pytest.raises(AttributeError):
        flags.cuda.nothing  # noqa: B018


def test_absent_devices_say_so():
    for name in ("accelerator", "mps", "xpu", "mtia", "distributed"):
        assert getattr(graphc, name).is_available() is False
    assert graphc.accelerator.current_accelerator() is None
    with pytest.raises(RuntimeError, match=r"torch.accelerator.synchronize\(\)"):
        graphc.accelerator.synchronize()
    assert graphc.distributed.get_rank() == 0 and graphc.distributed.get_world_size() == 1
    assert not graphc.distributed.is_initialized()


REFUSED = """
    distributed.init_process_group distributed.all_reduce nn.parallel.DistributedDataParallel
    distributed.fsdp.FullyShardedDataParallel fx.replace_pattern
    onnx.dynamo_export ao.quantization.QuantStub quantization.quantize_dynamic sparse.spsolve
    nested.nested_tensor utils.cpp_extension.load_inline distributed.rpc.init_rpc
    distributed.nn.all_gather distributed.nn.functional.all_reduce TensorType
""".split()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_torch_and_the_cure(name):
    module, _, leaf = f"graphc.{name}".rpartition(".")
    found = getattr(importlib.import_module(module), leaf)
    with pytest.raises(NotImplementedError, match=rf"torch\.{name}(.|\n)*Cure: "):
        found(None)
    assert not isinstance(found, type) or not isinstance(1, found)


def test_jit_gives_back_what_it_got():
    jit, nn = graphc.jit, graphc.nn
    model = nn.Linear(2, 2)
    assert jit.script(model) is model and jit.trace(model, graphc.ones(1, 2)) is model
    with pytest.raises(RuntimeError):
        jit.trace(model, graphc.ones(1, 3))
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(model)
    assert jit.freeze(model.eval()) is model

    class Marked(nn.Module):
        steps: jit.Final[int] = 3

        @jit.ignore
        def one(self): return 1

        @jit.unused
        def two(self): return 2

        @jit.ignore(drop=True)
        def three(self): return 3

        @jit.export
        def four(self): return 4

    marked = Marked()
    assert [marked.one(), marked.two(), marked.three(), marked.four()] == [1, 2, 3, 4]
    assert not jit.is_scripting() and jit.annotate(list[int], [1]) == [1]
    assert jit.wait(jit.fork(lambda x: x + 1, 2)) == 3
    for value, kind in (([1], list[int]), ({"a": 1}, dict[str, int]), ((1, "a"), tuple[int, str]),
                        (None, int | None)):
        assert jit.isinstance(value, kind)
    assert not jit.isinstance(["a"], list[int])


def test_compiler_knows_when_it_compiles():
    seen = []

    def function(x):
        seen.append(graphc.compiler.is_compiling())
        return x + 1

    function(graphc.ones(1))
    graphc.compile(function)(graphc.ones(1))
    assert seen[0] is False and True in seen


def test_a_compiled_module_is_known_by_its_class():
    """accelerate and Lightning ask so before they take the wrapper off."""
    model = graphc.nn.Linear(2, 2)
    compiled = graphc.compile(model)
    kind = graphc._dynamo.eval_frame.OptimizedModule
    assert isinstance(compiled, kind) and not isinstance(model, kind)
    assert compiled._orig_mod is model and kind is graphc._dynamo.OptimizedModule
    with pytest.raises(NotImplementedError, match=r"torch\.compile"):
        kind(model)


def test_why_a_function_is_several_graphs():
    """As many as torch says, at the same lines."""
    importlib.import_module("torch._dynamo")

    def several(x):
        y = x * 2
        if y.sum() > 3:
            y = y + 1
        print(y)
        return y.sin()

    def one(x):
        return x.sin() + 1

    for function in (several, one):
        found, expected = (
            t._dynamo.explain(function)(t.ones(2)) for t in (graphc, torch)
        )
        assert found.graph_count == expected.graph_count
        assert found.graph_break_count == expected.graph_break_count
        lines, expected_lines = (
            [each.user_stack[-1].lineno for each in e.break_reasons] for e in (found, expected)
        )
        assert lines == expected_lines
        assert f"Graph Count: {found.graph_count}\n" in str(found)


def test_flags_for_a_while():
    dynamo, inductor = graphc._dynamo.config, graphc._inductor.config
    graphs = inductor.patch("triton.cudagraphs", True)
    with dynamo.patch(suppress_errors=True, verbose=True), graphs:
        assert dynamo.suppress_errors and dynamo.verbose and inductor.triton.cudagraphs
    assert not (dynamo.suppress_errors or dynamo.verbose or inductor.triton.cudagraphs)

    @dynamo.patch({"recompile_limit": 3})
    def limit():
        return dynamo.recompile_limit

    assert (limit(), dynamo.recompile_limit) == (3, 8)
    with pytest.raises(AttributeError, match="no_such_flag"), dynamo.patch(no_such_flag=1):
        pass
    assert graphc._inductor.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}


def test_what_fullgraph_refuses_is_caught_by_its_name():
    with pytest.raises(graphc._dynamo.exc.Unsupported):
        graphc.compile(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True)(graphc.ones(1))


def test_custom_operators():
    library = graphc.library

    @library.custom_op("tests::cube", mutates_args=())
    def cube(x: graphc.Tensor, scale: float = 1.0) -> graphc.Tensor:
        return x * x * x * scale

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale, None

    library.register_autograd("tests::cube", backward, setup_context=setup)
    x = graphc.tensor([1.0, 2.0], requires_grad=True)
    graphc.ops.tests.cube.default(x, scale=2.0).sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]
    assert graphc.ops.aten.add.Tensor(1, x).tolist() == [2.0, 3.0]
    with pytest.raises(AttributeError, match=r"torch\.ops\.tests\.nothing"):
        graphc.ops.tests.nothing  # noqa: B018


def test_profiler_counts_operators_and_blocks():
    x = graphc.ones(4, 4)
    with graphc.profiler.profile() as seen, graphc.profiler.record_function("mine"):
        (x @ x).relu().sum()
    rows = {event.key: event for event in seen.key_averages()}
    assert rows["aten::relu"].count == 1 and rows["mine"].total >= rows["aten::relu"].total
    assert rows["mine"].self_total <= rows["mine"].total
    assert "aten::sum" in seen.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    action, real = graphc.profiler.schedule, torch.profiler.schedule
    options = {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}
    for step in range(12):
        assert action(**options)(step).name == real(**options)(step).name
    before = len(seen.events())
    x.exp()
    assert len(seen.events()) == before


def test_hub_downloads_once(tmp_path: Path):
    state = {"weight": graphc.arange(3.0)}
    source = tmp_path / "model.pth"
    graphc.save(state, source)
    folder = tmp_path / "kept"
    for _ in range(2):
        got = graphc.hub.load_state_dict_from_url(source.as_uri(), str(folder), progress=False)
        assert got["weight"].tolist() == [0.0, 1.0, 2.0]
        source.unlink(missing_ok=True)
    other = tmp_path / "other"
    other.write_bytes(b"abc")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        graphc.hub.download_url_to_file(other.as_uri(), str(tmp_path / "out"), "00", False)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.part"))


SPECIAL = [
    ("entr", [0.5, 0.0, 2.0, -1.0]), ("ndtr", [-3.0, 0.0, 1.5]), ("ndtri", [0.1, 0.5, 0.9]),
    ("expit", [-1.0, 2.0]), ("gammaln", [0.5, 3.0]), ("psi", [0.5, 3.0]), ("erfc", [-1.0, 2.0]),
    ("sinc", [0.0, 0.3]), ("exp2", [1.5, -2.0]),
]


@pytest.mark.parametrize(("name", "values"), SPECIAL, ids=[name for name, _ in SPECIAL])
def test_special(name, values):
    results = []
    for t in (torch, graphc):
        x = t.tensor(values, dtype=t.float64, requires_grad=True)
        y = getattr(t.special, name)(x)
        y.sum().backward()
        results.append((y.detach().numpy(), x.grad.numpy()))
    (want, grad), (have, mine) = results
    np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)
    finite = np.isfinite(grad)
    np.testing.assert_allclose(mine[finite], grad[finite], rtol=1e-9, atol=1e-12)


def test_special_of_two():
    x, y = [0.0, 0.0, 2.0, 1.5], [math.nan, -1.0, 0.5, 3.0]
    want = torch.special.xlog1py(torch.tensor(x), torch.tensor(y))
    have = graphc.special.xlog1py(graphc.tensor(x), graphc.tensor(y))
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6)
    want = torch.special.multigammaln(torch.tensor([2.5, 4.0]), 3)
    have = graphc.special.multigammaln(graphc.tensor([2.5, 4.0]), 3)
    np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6)


def test_annotations_name_futures():
    for package in (graphc, torch):
        assert package.futures.Future[int].__args__ == (int,)
        assert isinstance(package.futures.Future(), package.Future)
        assert not isinstance(package.ones(1), package.Future)


def test_futures():
    future = graphc.futures.Future()
    doubled = future.then(lambda f: 2 * f.wait())
    together = graphc.futures.collect_all([future, doubled])
    assert not together.done()
    future.set_result(4)
    assert doubled.wait() == 8 and together.done()
    assert graphc.futures.wait_all([future, doubled]) == [4, 8]


def test_torchs_modules_are_there_without_an_import_of_their_own():
    shared = [
        module.name for module in pkgutil.iter_modules(graphc.__path__)
        if isinstance(found := getattr(torch, module.name, None), ModuleType)
        and found.__name__.startswith("torch")  # no module of Python's that it imports
    ]
    script = f"import graphc; print([n for n in {shared} if not hasattr(graphc, n)])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(shared) > 40 and done.stdout.strip() == "[]"


def test_operators_by_name_that_are_methods_of_tensors():
    """torch_geometric names them when it is imported, as keys of a table."""
    x = graphc.arange(3.0)
    aten = graphc.ops.aten
    other = aten.alias.default(x)
    aten.sub_.Tensor(other, 1)
    assert x.tolist() == [-1.0, 0.0, 1.0] and other is not x
    copied = aten._to_copy.default(x)
    assert copied.data_ptr() != x.data_ptr() and copied.tolist() == x.tolist()
    assert aten._to_copy(x, dtype=graphc.int64).dtype is graphc.int64
    rows = graphc.arange(6.0).reshape(2, 3)
    assert aten.index.Tensor(rows, [None, graphc.tensor([2, 0])]).tolist() == [[2, 0], [5, 3]]
    zeros, eye = graphc.zeros(2, 3), graphc.eye(2).to_sparse()
    assert aten._sparse_addmm.default(zeros, eye, rows, alpha=2).tolist() == (rows * 2).tolist()
    with pytest.raises(AttributeError, match=r"torch\.ops\.aten\.nothing_"):
        aten.nothing_  # noqa: B018


def test_what_a_build_is_made_of():
    """torch_geometric looks for settings in it."""
    shown = graphc.__config__.show()
    assert "USE_MKL=OFF" in shown and f"TORCH_VERSION={graphc.version.__version__}" in shown
    assert f"get_num_threads() : {graphc.get_num_threads()}" in graphc.__config__.parallel_info()


def test_parts_of_a_tensors_text():
    torch = pytest.importorskip("torch")

    def told(t):
        parts, x = t._tensor_str, t.arange(30.0).reshape(3, 10) / 7
        body = f"Own({parts._tensor_str(x, 4)}"
        return [
            parts._add_suffixes(body, suffixes, 4, forced)
            for suffixes in ([], ["size=3"], ["size=3", "more=" + "x" * 70])
            for forced in (False, True)
        ] + [parts._str(x), parts.PRINT_OPTS.threshold, parts._tensor_str(t.tensor([1, 20]), 0)]

    assert told(graphc) == told(torch)
