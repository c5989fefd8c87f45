from ..kernel import Kernel
from .lower_values import Body
def lower_cumulative(body: Body) -> Kernel:
    raise NotImplementedError
