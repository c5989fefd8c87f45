"""graphc: a graph-compiling deep learning framework, shaped like PyTorch.

    import graphc as torch
    import graphc.nn as nn
"""

from __future__ import annotations

import importlib
import math
import sys
from types import ModuleType
from typing import Any

from .collecting import IMPORTING as _IMPORTING

with _IMPORTING:
    from . import config as config
    from . import kept_modules as _kept_modules

    _kept_modules.use(config.current().cache_dir)

    from . import late_names as _late_names
    from .backends import flags as _flags
    from .backends import numpy as _numpy_backend
    from .backends.numpy import blas as _blas
    from .engine import draws as _draws
    from .engine import eager_mode as _eager_mode
    from .frontend import autograd as _autograd
    from .frontend import called_nodes as _called_nodes
    from .frontend import dispatch as _dispatch
    from .frontend import float32 as _float32
    from .frontend import functions as _functions
    from .frontend import placement as _placement
    from .frontend import random_state as random
    from .frontend.device import device as device
    from .frontend.grad_mode import (
        enable_grad,
        inference_mode,
        is_grad_enabled,
        is_inference_mode_enabled,
        no_grad,
        set_grad_enabled,
    )
    from .frontend.numbers import Size as Size
    from .frontend.overriding import Installed as _Installed
    from .frontend.random_state import (
        Generator,
        default_generator,
        get_rng_state,
        initial_seed,
        manual_seed,
        seed,
        set_rng_state,
    )
    from .frontend.tensor import Tensor as Tensor
    from .frontend.tensor import register_methods as _register_methods
    from .frontend.values import Eager as _Eager
    from .host_memory import keep_freed as _keep_freed
    from .ir.dtypes import DType as dtype
    from .ir.shown import Shown as _Shown

_keep_freed(config.current().keep_freed)
# eager mode runs on NumPy: the frontend itself knows no backend
_dispatch.set_runner(
    _eager_mode.run, _eager_mode.prepare, _eager_mode.rule, _eager_mode.chain
)
_native = _draws.Native(
    lambda: importlib.import_module(".engine.pipeline", __package__).draws(config.current())
)
_numpy_backend.use(_draws.functions(_native))
_Eager.whole = staticmethod(_eager_mode.whole)
_Eager.program = staticmethod(_eager_mode.program)
_Eager.gradient = staticmethod(_eager_mode.gradient)
_Eager.apart = staticmethod(_eager_mode.apart)
_Eager.join = staticmethod(_eager_mode.join)
_Eager.between = staticmethod(_native.between)
_Eager.drawer = staticmethod(_native.drawer)
_numpy_backend.Draws.by_counter = _Eager.by_counter = staticmethod(
    lambda: config.current().random == "counter"
)

_float32.Settings.products = staticmethod(_flags.products)
_float32.Settings.convolutions = staticmethod(_flags.convolutions)
_Installed.change = staticmethod(
    lambda *wanted: importlib.import_module(".overridable", __package__).change(*wanted)
)
_placement.look_for(
    "cuda", lambda index: importlib.import_module(".cuda.places", __package__).find(index)
)
_Shown.svg = staticmethod(
    lambda graph: importlib.import_module(".inspect.picture", __package__).graph_svg(graph)
)
_Shown.html = staticmethod(
    lambda thing: importlib.import_module(".inspect.page.fragment", __package__).of_ir(thing)
)

__version__ = "0.1.0"

globals().update(_functions.NAMES)
_register_methods(_late_names.methods(_dispatch.inplace))

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None

# name -> the module that has it; imported when first asked for
_LAZY = {
    "compile": ".compile", "GradScaler": ".amp", "get_device_module": ".accelerator",
    "explain": ".inspect.explain", "summary": ".inspect.tensors", "save": ".serialization",
    "PerformanceWarning": ".engine.segments.tiers", "compare": ".doubt.compare",
    "MemoryLimitError": ".frontend.errors",
    "load": ".serialization", "autocast": ".amp", "vmap": ".frontend.vmap",
    "cond": ".frontend.control",
    "while_loop": ".frontend.control", "ops": ".ops_registry", "classes": ".ops_registry",
    "PyTorchFileReader": "._C", **dict.fromkeys(
        "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor "
        "sparse_compressed_tensor".split(), ".sparse",
    ),
    "_assert_async": "._C", "OutOfMemoryError": ".ir.memory",
    "AcceleratorError": ".ir.memory",
    "SymInt": ".frontend.numbers", "SymFloat": "._C", "SymBool": "._C",
    "ScriptModule": ".jit", "ScriptFunction": ".jit", "Future": ".futures",
    "DeviceObjType": "._C", "TensorType": "._C",
}
# torch's copies of functions of nn.functional (others take other arguments: late_names)
_NN_FUNCTIONS = frozenset("""
    adaptive_avg_pool1d avg_pool1d bilinear celu channel_shuffle conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity hardshrink
    max_pool1d max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu
    rms_norm rrelu selu threshold
""".split())
# in amp.state
_AUTOCAST = frozenset("""
    is_autocast_available is_autocast_enabled set_autocast_enabled get_autocast_dtype
    set_autocast_dtype is_autocast_cpu_enabled set_autocast_cpu_enabled get_autocast_cpu_dtype
    set_autocast_cpu_dtype get_autocast_gpu_dtype set_autocast_gpu_dtype is_autocast_cache_enabled
    set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting
    autocast_decrement_nesting
""".split())
# torch's packages and modules, imported when first asked for
_PACKAGES = frozenset("""
    _C __config__ _dynamo _higher_order_ops _inductor _subclasses _tensor _tensor_str _utils
    accelerator amp ao autograd backends compat compiler cpu cuda distributed distributions export
    fft func functional futures fx hub jit library linalg masked mps mtia multiprocessing nested nn
    onnx optim overrides profiler quantization quasirandom serialization signal sparse special
    storage testing torch_version types utils version vision xpu
""".split())


def set_num_threads(number: int) -> None:
    """Threads of compiled code, and of eager mode's matrix products, for all threads of the
    process. Results of compiled code do not depend on it."""
    if not hasattr(number, "__index__"):
        raise RuntimeError(
            f"set_num_threads expects an int, but got {number.__class__.__name__}"
        )
    if number <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, but got {number}")
    config.set_default(threads=number)
    _blas.use(config.current().threads)
    pipeline = sys.modules.get(f"{__package__}.engine.pipeline")
    if pipeline is not None:  # else nothing is compiled yet
        pipeline.adapt(config.current())


def get_num_threads() -> int:
    """Threads of compiled code."""
    return config.current().threads


# public here and not in what `from torch import *` gives
_NOT_IN_STAR = frozenset("""
    BFloat16Storage ComplexDoubleStorage ComplexFloatStorage HalfStorage
    BFloat16Tensor ComplexDoubleTensor ComplexFloatTensor HalfTensor PyTorchFileReader annotations
    broadcast_shapes channels_last channels_last_3d contiguous_format expit from_dlpack
    preserve_format set_default_dtype set_grad_enabled sparse_bsc sparse_bsr sparse_coo sparse_csc
    sparse_csr strided unique PerformanceWarning compare
    MemoryLimitError explain summary Any ModuleType ops classes eig is_autocast_available lstsq lu
    matrix_rank pca_lowrank segment_reduce solve svd_lowrank symeig while_loop
""".split())


def _star() -> list[str]:
    """Names for `from graphc import *`: torch's, without modules."""
    here = (n for n, v in globals().items() if n[0] != "_" and not isinstance(v, ModuleType))
    found = {*here, *_LAZY, *_NN_FUNCTIONS, *_AUTOCAST, *_late_names.PLACES} - _NOT_IN_STAR
    return sorted(name for name in found if name[0] != "_")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _star()
    if name in _LAZY:
        with _IMPORTING:
            found = getattr(importlib.import_module(_LAZY[name], __package__), name)
        globals()[name] = found
        return found
    if name in _PACKAGES:
        full = f"{__package__}.{name}"
        try:
            with _IMPORTING:
                return importlib.import_module(full)
        except ModuleNotFoundError as error:
            if error.name != full:  # something that it needs is missing
                raise
    if name in _AUTOCAST:
        return getattr(importlib.import_module(".amp.state", __package__), name)
    if name in _late_names.PLACES:
        found = globals()[name] = _late_names.load(name)
        return found
    if name in _NN_FUNCTIONS:
        functional = importlib.import_module(".nn.functional", __package__)
        if hasattr(functional, name):
            return getattr(functional, name)
    raise AttributeError(
        f"module 'graphc' has no attribute {name!r}", name=name, obj=sys.modules["graphc"]
    )
