from ..kernel import Kernel
from .lower_values import Body
def lower_scatter(body: Body) -> Kernel:
    raise NotImplementedError
