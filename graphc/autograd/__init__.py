"""torch.autograd: gradients by hand, custom Functions, grad modes."""

from ..frontend.autograd import backward as backward
from ..frontend.autograd import grad as grad
from ..frontend.function import Function as Function
from ..frontend.grad_mode import enable_grad as enable_grad
from ..frontend.grad_mode import inference_mode as inference_mode
from ..frontend.grad_mode import no_grad as no_grad
from ..frontend.grad_mode import set_grad_enabled as set_grad_enabled
from . import function as function
from .variable import Variable as Variable
