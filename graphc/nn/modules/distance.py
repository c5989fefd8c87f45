"""torch.nn.modules.distance."""

from .padding import CosineSimilarity as CosineSimilarity
from .padding import PairwiseDistance as PairwiseDistance
