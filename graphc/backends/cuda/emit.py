"""`emit(kernel)`: a kernel as CUDA C. Pure: nothing is compiled or run.

A stage is one `__global__` function: launches in order are the barrier between stages. How loops
are shared out to threads is `loops/`'s, what templates become is `templates/`'s.
"""

from __future__ import annotations

from graphc.backends.cuda import loops, templates
from graphc.backends.cuda.source import OLDEST, Source, Target
from graphc.ir.kernel import Kernel


def emit(kernel: Kernel, target: Target = OLDEST, plan: object = None) -> Source:
    """A kernel as CUDA C. `plan`: see templates.Renderer. Raises NotImplementedError for what there
    is no code for."""
    if kernel.template is not None:
        return templates.render(kernel, target, plan)
    return loops.render(kernel, target)
