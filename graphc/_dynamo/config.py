"""torch._dynamo.config: flags that scripts set; nothing reads them."""

from .._utils_config import patching

suppress_errors = False
cache_size_limit = 8
recompile_limit = 8
accumulated_cache_size_limit = 256
verbose = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
optimize_ddp = True
guard_nn_modules = True
inline_inbuilt_nn_modules = True
error_on_recompile = False
compiled_autograd = False

patch = patching(__name__)
