"""What runs a graph: numpy (reference and eager), llvm (CPU), cuda (GPU).

Also torch.backends, by the name's accident: cudnn, mps, ... are the flags that scripts set.
"""

import importlib
from typing import Any

_FLAGS = frozenset({
    "cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized",
})

if __name__ != "graphc.backends":  # reached through the link at the repository's root
    right = "import graphc.backends"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)


def __getattr__(name: str) -> Any:
    if name in _FLAGS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
