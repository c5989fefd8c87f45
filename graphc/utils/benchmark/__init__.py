"""torch.utils.benchmark: time a statement, and tables of several times.

    from torch.utils.benchmark import Compare, Timer
    Timer("x.sum()", globals={"x": x}).blocked_autorange()
"""

from .compare import Colorize as Colorize
from .compare import Compare as Compare
from .measurement import Measurement as Measurement
from .measurement import TaskSpec as TaskSpec
from .measurement import ordered_unique as ordered_unique
from .measurement import select_unit as select_unit
from .measurement import set_torch_threads as set_torch_threads
from .measurement import trim_sigfig as trim_sigfig
from .measurement import unit_to_english as unit_to_english
from .timer import Language as Language
from .timer import Timer as Timer
from .timer import timer as timer
