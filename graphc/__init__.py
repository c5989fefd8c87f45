"""graphc: a graph-compiling deep learning framework, shaped like PyTorch.

    import graphc as torch
    import graphc.nn as nn
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

from . import config as config
from .backends import numpy as _numpy_backend
from .frontend import autograd as _autograd
from .frontend import dispatch as _dispatch
from .frontend import functions as _functions
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
from .ir.dtypes import DType as dtype

# eager mode runs on NumPy: the frontend itself knows no backend
_dispatch.set_runner(_numpy_backend.run)

__version__ = "0.1.0"

globals().update(_functions.NAMES)

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None

# name -> the module that has it; imported when first asked for
_LAZY = {
    "compile": ".compile", "explain": ".inspect", "save": ".serialization",
    "load": ".serialization",
}  # fmt: skip
# torch's copies of functions of nn.functional
_NN_FUNCTIONS = frozenset("""
    adaptive_avg_pool1d alpha_dropout avg_pool1d batch_norm bilinear celu channel_shuffle conv1d
    conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss
    cosine_similarity ctc_loss dropout embedding embedding_bag feature_alpha_dropout group_norm
    hardshrink hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss max_pool1d
    max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu rms_norm rrelu
    selu threshold triplet_margin_loss binary_cross_entropy_with_logits poisson_nll_loss
""".split())
_PACKAGES = ("nn", "optim", "utils", "autograd", "export", "vision", "cuda", "serialization")


def set_num_threads(number: int) -> None:
    """Threads of compiled code, for all threads of the process. Results do not depend on it."""
    config.set_default(threads=number)
    pipeline = sys.modules.get(f"{__name__}.pipeline")
    if pipeline is not None:  # else nothing is compiled yet, and there is no pool to resize
        pipeline.pool(config.current())


def get_num_threads() -> int:
    """Threads of compiled code."""
    return config.current().threads


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        found = getattr(importlib.import_module(_LAZY[name], __name__), name)
        globals()[name] = found
        return found
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _NN_FUNCTIONS:
        functional = importlib.import_module(".nn.functional", __name__)
        if hasattr(functional, name):
            return getattr(functional, name)
    raise AttributeError(f"module 'graphc' has no attribute {name!r}")
