"""The argument block of a contraction kernel, read in the entry block of a function."""

from graphc.backends.llvm.gemm_sizes import emit_size
from graphc.backends.llvm.text import Function, Value
from graphc.ir.dim import Size
from graphc.ir.kernel import Kernel


class Arguments:
    """The argument block of a kernel: buffers by name, then the named dims."""

    def __init__(self, f: Function, kernel: Kernel) -> None:
        self.f = f
        self._places = {param.name: index for index, param in enumerate(kernel.params)}
        first = len(kernel.params)
        self.names: dict[str, Value] = {
            name: f.load(f.gep("%args", first + index, "i64"), "i64", 8)
            for index, name in enumerate(kernel.dims)
        }

    def buffer(self, name: str) -> str:
        """The pointer of a buffer."""
        return self.f.load(self.f.gep("%args", self._places[name], "ptr"), "ptr", 8)

    def size(self, size: Size) -> Value:
        """The value of a size over the named dims and what was added to `names`."""
        return emit_size(self.f, size, self.names)
