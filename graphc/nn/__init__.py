"""torch.nn: layers, losses, functional forms, initialisation."""

from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules import *  # noqa: F403
from .parameter import Parameter as Parameter
