"""The 5,000 MNIST digits that travel with the package (provenance: data/README.txt)."""

from pathlib import Path

import numpy as np

DIGITS, PER_DIGIT, TRAIN_PER_DIGIT = 10, 500, 400


def load_digits(train: bool) -> tuple[np.ndarray, np.ndarray]:
    """The embedded split: 4,000 images to train on or 1,000 held out, each digit equally often.

    Returns uint8 images [N, 28, 28] and int64 labels [N], in one fixed shuffled order: a batch
    taken without shuffling holds all digits.
    """
    with np.load(Path(__file__).parent / "data" / "mnist_5k.npz", allow_pickle=False) as archive:
        images, labels = archive["images"], archive["labels"]
    # The file is sorted by digit: 500 zeros, 500 ones, ...
    rank = np.arange(DIGITS * PER_DIGIT) % PER_DIGIT
    chosen = np.flatnonzero((rank < TRAIN_PER_DIGIT) == train)
    # RandomState's streams are frozen by NumPy's compatibility policy; Generator's are not.
    order = np.random.RandomState(0).permutation(chosen)
    return images[order], labels[order].astype(np.int64)
