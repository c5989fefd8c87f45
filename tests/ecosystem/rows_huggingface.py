"""Hugging Face: transformers, datasets, accelerate, peft, timm, diffusers."""

from tests.ecosystem.matrix import Row

ROWS: list[Row] = []
