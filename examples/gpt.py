"""A small GPT that learns additions by their letters, and then writes the sums itself.

    python examples/gpt.py [--steps 2000]

A line is "57+8=56\n": the sum's digits come last first, as one writes them by hand. The loss
counts only what follows the sign of equality. `generate` runs the compiled model letter by letter:
its length is a free size from the second letter on, so two versions serve all of them.
"""

import argparse
import math

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F

LETTERS = "0123456789+=\n"
WIDTH, HEADS, LAYERS, LONGEST = 64, 4, 2, 10


class Block(nn.Module):
    """Attention to what is to the left, then two layers at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_layers = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.queries_keys_values(self.before_attention(x)).split(WIDTH, dim=2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.layers(self.before_layers(x))


class GPT(nn.Module):
    """Letters int64 [batch, length] to logits [batch, length, len(LETTERS)]."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)
        self.head.weight = self.letters.weight
        nn.init.normal_(self.letters.weight, std=0.05)

    def forward(self, text):
        places = torch.arange(text.shape[1])
        return self.head(self.norm(self.blocks(self.letters(text) + self.places(places))))


def encoded(text: str) -> torch.Tensor:
    return torch.tensor([LETTERS.index(letter) for letter in text])


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lines int64 [size, LONGEST], filled up with line ends, and which letters count as answers."""
    pairs = torch.randint(0, 100, (size, 2)).tolist()
    lines = [f"{a}+{b}={str(a + b)[::-1]}\n".ljust(LONGEST, "\n") for a, b in pairs]
    answers = [[line.index("=") < place <= line.index("\n") for place in range(LONGEST)]
               for line in lines]
    return torch.stack([encoded(line) for line in lines]), torch.tensor(answers)


@torch.no_grad()
def generate(model, prompt: str, temperature: float = 0.0) -> str:
    """The prompt, and what the model writes after it, up to the end of the line."""
    text = encoded(prompt)[None]
    while text.shape[1] < LONGEST:
        logits = model(text)[0, -1]
        if temperature:
            letter = torch.multinomial((logits / temperature).softmax(0), 1)
        else:
            letter = logits.argmax(0, keepdim=True)
        text = torch.cat([text, letter[None]], dim=1)
        if LETTERS[letter.item()] == "\n":
            break
    return "".join(LETTERS[i] for i in text[0].tolist()).strip()


def main(steps: int = 2000) -> float:
    """The share of 100 additions that come out right."""
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(
        (n + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * n / steps)
    ))

    @torch.compile
    def step(text, answers):
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten(), reduction="none")
        counts = answers[:, 1:].flatten().float()
        loss = (losses * counts).sum() / counts.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for done in range(1, steps + 1):
        loss = step(*batch(128))
        schedule.step()
        if done % 250 == 0:
            print(f"step {done}: loss {loss.item():.4f}")

    model.eval()
    writer = torch.compile(model)
    right = 0
    for a, b in torch.randint(0, 100, (100, 2)).tolist():
        line = generate(writer, f"{a}+{b}=")
        right += line == f"{a}+{b}={str(a + b)[::-1]}"
    print(f"{line} (backwards), and {right} of 100 sums are right")
    return right / 100


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    main(parser.parse_args().steps)
