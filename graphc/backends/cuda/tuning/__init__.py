"""Timed choice (torch.compile's mode="max-autotune"): of the ways to compute each contraction of a
program, the one that took least on the device at hand, kept on disk."""

from graphc.backends.cuda.tuning.tuner import Tuner as Tuner
