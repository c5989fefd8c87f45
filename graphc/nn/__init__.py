"""torch.nn: layers, losses, functional forms, initialisation."""

from . import functional, init, modules, parameter, utils
from .modules import *  # noqa: F403
from .parameter import Parameter
