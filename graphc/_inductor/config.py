"""torch._inductor.config: flags that scripts set. max_autotune and max_autotune_gemm are read when
a function is compiled (engine/mode.py), the others by nothing."""

from types import SimpleNamespace

from .._utils_config import patching

max_autotune = False
max_autotune_gemm = False
coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
allow_buffer_reuse = True
inplace_buffers = True
fx_graph_cache = True
conv_1x1_as_mm = False
force_fuse_int_mm_with_mul = False
use_mixed_mm = False
fallback_random = False
freezing = False
cpp_wrapper = False
debug = False
shape_padding = True
unique_kernel_names = False
triton = SimpleNamespace(
    cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True,
    cudagraph_skip_dynamic_graphs=False,
)
cpp = SimpleNamespace(threads=-1, simdlen=None, enable_kernel_profile=False)
trace = SimpleNamespace(enabled=False)

patch = patching(__name__)
