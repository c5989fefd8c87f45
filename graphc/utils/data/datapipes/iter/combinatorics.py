"""torch.utils.data.datapipes.iter.combinatorics."""

from .....unsupported import kind

ShufflerIterDataPipe = kind(
    "torch.utils.data.datapipes.iter.combinatorics.ShufflerIterDataPipe",
    "an IterableDataset that shuffles in its __iter__",
)
