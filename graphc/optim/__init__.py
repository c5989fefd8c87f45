"""torch.optim: optimizers and learning-rate schedulers, as plain Tensor code."""

from . import lr_scheduler as lr_scheduler
from .adam import Adagrad as Adagrad
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adam import RMSprop as RMSprop
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
