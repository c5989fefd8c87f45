"""Tag the words of sentences by an LSTM that reads both ways: padded and packed sequences.

    python examples/tagger.py [--steps 150]

The sentences are made by a small grammar in which "that" and "her" have two uses each; what is
right follows from their neighbours.
"""

import argparse
import random

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

TAGS = ["noun", "verb", "determiner", "pronoun", "conjunction"]
NOUNS, VERBS = "dog cat bird child letter song".split(), "saw heard knew liked".split()


def phrase(chance: random.Random) -> list[tuple[str, str]]:
    kind = chance.random()
    if kind < 0.3:
        return [(chance.choice(["she", "it", "that", "her"]), "pronoun")]
    return [(chance.choice(["the", "a", "that", "her"]), "determiner"),
            (chance.choice(NOUNS), "noun")]


def sentence(chance: random.Random, depth: int = 0) -> list[tuple[str, str]]:
    """Words and their tags: someone saw something, or knew that someone saw something, ..."""
    words = [*phrase(chance), (chance.choice(VERBS), "verb")]
    if depth < 3 and chance.random() < 0.4:
        return [*words, ("that", "conjunction"), *sentence(chance, depth + 1)]
    return words + phrase(chance)


WORDS = sorted({"she", "it", "that", "her", "the", "a", *NOUNS, *VERBS})


def batch(chance: random.Random, size: int):
    """Words and tags int64 [size, longest] (filled up with -1 as tags), and the lengths [size]."""
    lines = [sentence(chance) for _ in range(size)]
    words = [torch.tensor([WORDS.index(word) for word, _ in line]) for line in lines]
    tags = [torch.tensor([TAGS.index(tag) for _, tag in line]) for line in lines]
    lengths = torch.tensor([len(line) for line in lines])
    return pad_sequence(words, batch_first=True), \
        pad_sequence(tags, batch_first=True, padding_value=-1), lengths


class Tagger(nn.Module):
    """Words [batch, length] to logits [batch, length, tags]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, len(TAGS))

    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.words(words), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(states)


def main(steps: int = 150) -> float:
    """The share of words in new sentences whose tags are right."""
    torch.manual_seed(0)
    chance = random.Random(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for done in range(1, steps + 1):
        words, tags, lengths = batch(chance, 32)
        optimizer.zero_grad()
        logits = model(words, lengths)
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-1)
        loss.backward()
        optimizer.step()
        if done % 50 == 0:
            print(f"step {done}: loss {loss.item():.4f}")

    words, tags, lengths = batch(chance, 200)
    with torch.no_grad():
        found = model(words, lengths).argmax(2)
    right = (found == tags)[tags >= 0].float().mean().item()
    print(f"{100 * right:.1f}% of the words are tagged right")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    main(parser.parse_args().steps)
