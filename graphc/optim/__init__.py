"""torch.optim: optimizers and learning-rate schedulers, as plain Tensor code; a file is imported
when one of its names is asked for."""

from typing import TYPE_CHECKING

from ..on_demand import on_demand

if TYPE_CHECKING:
    from . import lr_scheduler as lr_scheduler
    from . import swa_utils as swa_utils
    from ._adafactor import Adafactor as Adafactor
    from ._muon import Muon as Muon
    from .adadelta import Adadelta as Adadelta
    from .adagrad import Adagrad as Adagrad
    from .adam import Adam as Adam
    from .adam import AdamW as AdamW
    from .adamax import Adamax as Adamax
    from .asgd import ASGD as ASGD
    from .lbfgs import LBFGS as LBFGS
    from .nadam import NAdam as NAdam
    from .optimizer import Optimizer as Optimizer
    from .radam import RAdam as RAdam
    from .rmsprop import RMSprop as RMSprop
    from .rprop import Rprop as Rprop
    from .sgd import SGD as SGD
    from .sparse_adam import SparseAdam as SparseAdam

_NAMES = {
    "_adafactor": "Adafactor",
    "_muon": "Muon",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam AdamW",
    "adamax": "Adamax",
    "asgd": "ASGD",
    "lbfgs": "LBFGS",
    "nadam": "NAdam",
    "optimizer": "Optimizer",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sgd": "SGD",
    "sparse_adam": "SparseAdam",
}
_OTHERS = """
    lr_scheduler adamw per_parameter real_parts step_hooks strong_wolfe swa_utils whole_step
""".split()

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = on_demand(__name__, _NAMES, _OTHERS)
    __all__ += ["lr_scheduler", "swa_utils"]
