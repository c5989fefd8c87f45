"""torch.utils.tensorboard: SummaryWriter, over the tensorboard or the tensorboardX package."""

from .packages import RecordWriter as RecordWriter
from .writer import FileWriter as FileWriter
from .writer import SummaryWriter as SummaryWriter

# what torch's module of this name gives to `import *`
__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
