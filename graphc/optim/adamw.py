"""torch.optim.adamw."""

from .adam import AdamW as AdamW
