"""torch._subclasses: the question whether a tensor is a fake one."""

from . import fake_tensor as fake_tensor
