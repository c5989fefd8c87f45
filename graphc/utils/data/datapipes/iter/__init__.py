"""torch.utils.data.datapipes.iter."""

from . import combinatorics as combinatorics
from .combinatorics import ShufflerIterDataPipe as Shuffler
