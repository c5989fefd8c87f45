"""Scripts whose Python needs values at each call, as users write them, for segments.py.

Each makes its state with `seed 0` and gives the function that is compiled, and what one call of
the script is: `script(space, large) -> (function, call)`, where call(function, i) does everything
that the script does for its i-th batch.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

Script = Callable[[SimpleNamespace, bool], tuple[Any, Callable[[Any, int], Any]]]


def packed_lstm(space: SimpleNamespace, large: bool) -> Any:
    """A classifier of sequences of different lengths."""
    torch, nn, rnn = space.torch, space.nn, space.nn.utils.rnn
    width = 128 if large else 32
    lstm, head = nn.LSTM(16, width, batch_first=True), nn.Linear(width, 4)
    optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=1e-3)
    random_ = np.random.default_rng(0)

    def loss_of(x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        return head(out).square().mean()

    def call(function: Any, i: int) -> Any:
        lengths = torch.tensor(random_.integers(3, 20, 8))
        optimizer.zero_grad()
        loss = function(torch.randn(8, int(lengths.max()), 16), lengths)
        loss.backward()
        optimizer.step()
        return loss.item()

    return loss_of, call


def hooks(space: SimpleNamespace, large: bool) -> Any:
    """Forward hooks that keep a number of each layer."""
    torch, nn = space.torch, space.nn
    width, batch = (256, 128) if large else (32, 32)
    model = nn.Sequential(
        nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width), nn.ReLU(),
        nn.Linear(2 * width, width),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen: list[float] = []
    for layer in model:
        layer.register_forward_hook(
            lambda module, args, out: seen.append(float(out.detach().abs().mean()))
        )
    x = torch.randn(batch, width)

    def loss_of(x: Any) -> Any:
        return model(x).square().mean()

    def call(function: Any, i: int) -> Any:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        optimizer.step()
        seen[:] = seen[-10:]
        return loss.item()

    return loss_of, call


def masks(space: SimpleNamespace, large: bool) -> Any:
    """A loss over the rows that a boolean mask selects."""
    torch, nn = space.torch, space.nn
    width, batch = (256, 512) if large else (32, 64)
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(x: Any) -> Any:
        y = model(x)
        return y[y[:, 0] > 0].square().sum() + y.mean()

    def call(function: Any, i: int) -> Any:
        optimizer.zero_grad()
        loss = function(torch.randn(batch, 16))
        loss.backward()
        optimizer.step()
        return loss.item()

    return loss_of, call


def generation(space: SimpleNamespace, large: bool) -> Any:
    """Tokens from a decoder with a cache of keys and values, until the end token."""
    torch, nn, F = space.torch, space.nn, space.F
    width, heads, layers = (256, 8, 4) if large else (32, 4, 2)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, cache: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                t.view(batch, length, heads, width // heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).split(width, dim=2)
            )
            if cache is not None:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)

    blocks = nn.ModuleList([Block() for _ in range(layers)])
    embedding, head = nn.Embedding(64, width), nn.Linear(width, 64)

    def generate(prompt: Any) -> list[int]:
        tokens: list[int] = []
        caches: list[Any] = [None] * layers
        now = prompt
        while len(tokens) < 8:
            x = embedding(now)
            for j, block in enumerate(blocks):
                x, caches[j] = block(x, caches[j])
            now = head(x[:, -1:]).argmax(-1)
            tokens.append(now.item())
            if tokens[-1] == 0:
                break
        return tokens

    prompts = [torch.randint(1, 64, (1, 12)) for _ in range(8)]

    def call(function: Any, i: int) -> Any:
        with torch.no_grad():
            return sum(function(prompts[i % 8]))

    return generate, call


def vae(space: SimpleNamespace, large: bool) -> Any:
    """A variational autoencoder's training step that logs both parts of its loss."""
    torch, nn, F = space.torch, space.nn, space.F
    size, width, latent, batch = (784, 400, 20, 128) if large else (64, 32, 8, 16)
    encoder, mean, spread = nn.Linear(size, width), nn.Linear(width, latent), nn.Linear(
        width, latent
    )
    decoder = nn.Sequential(
        nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, size), nn.Sigmoid()
    )
    layers = nn.ModuleList([encoder, mean, spread, decoder])
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
    log: list[Any] = []

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        hidden = F.relu(encoder(x))
        mu, logvar = mean(hidden), spread(hidden)
        out = decoder(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar))
        error = F.binary_cross_entropy(out, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = error + divergence
        loss.backward()
        optimizer.step()
        log.append((error.item(), divergence.item()))
        return loss.item()

    batches = [torch.rand(batch, size) for _ in range(8)]
    return step, lambda function, i: function(batches[i % 8])


def gan(space: SimpleNamespace, large: bool) -> Any:
    """A GAN's training step that prints both losses."""
    torch, nn = space.torch, space.nn
    latent, width, size, batch = (100, 256, 784, 64) if large else (16, 32, 48, 16)
    generator = nn.Sequential(
        nn.Linear(latent, width), nn.LeakyReLU(0.2), nn.Linear(width, width),
        nn.BatchNorm1d(width), nn.LeakyReLU(0.2), nn.Linear(width, size), nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Linear(size, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )
    first = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999))
    loss_of, out = nn.BCEWithLogitsLoss(), io.StringIO()

    def step(real: Any, i: int) -> Any:
        ones, zeros = torch.ones(real.shape[0], 1), torch.zeros(real.shape[0], 1)
        fake = generator(torch.randn(real.shape[0], latent))
        first.zero_grad()
        made = loss_of(critic(fake), ones)
        made.backward()
        first.step()
        second.zero_grad()
        told = (loss_of(critic(real), ones) + loss_of(critic(fake.detach()), zeros)) / 2
        told.backward()
        second.step()
        print(f"[{i}] D {told.item():.4f} G {made.item():.4f}", file=out)
        return made + told

    batches = [torch.randn(batch, size) for _ in range(8)]
    return step, lambda function, i: function(batches[i % 8], i).item()


def seq2seq(space: SimpleNamespace, large: bool) -> Any:
    """A translation step whose decoder is fed its own words now and then."""
    torch, nn, F = space.torch, space.nn, space.F
    words, width, batch, length = (64, 256, 32, 10) if large else (20, 32, 8, 6)
    embedding, encoder = nn.Embedding(words, width), nn.GRU(width, width)
    cell, head = nn.GRUCell(width, width), nn.Linear(width, words)
    layers = nn.ModuleList([embedding, encoder, cell, head])
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
    random_ = random.Random(0)

    def step(source: Any, target: Any) -> Any:
        optimizer.zero_grad()
        hidden = encoder(embedding(source))[1][0]
        word, outs = target[0], []
        for t in range(1, target.shape[0]):
            hidden = cell(embedding(word), hidden)
            outs.append(head(hidden))
            word = target[t] if random_.random() < 0.5 else outs[-1].argmax(1)
        loss = F.cross_entropy(torch.stack(outs).reshape(-1, words), target[1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    batches = [
        (torch.randint(0, words, (length, batch)), torch.randint(0, words, (length, batch)))
        for _ in range(8)
    ]
    return step, lambda function, i: function(*batches[i % 8])


def reinforce(space: SimpleNamespace, large: bool) -> Any:
    """An episode of policy gradients, as long as it happens to be."""
    torch, nn, F = space.torch, space.nn, space.F
    size, width, actions = (64, 512, 8) if large else (4, 64, 2)
    policy = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, actions))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)

    def episode(count: int) -> Any:
        chances, rewards = [], []
        state = np.full(size, 0.1, "f")
        for _ in range(count):
            choice = torch.distributions.Categorical(
                F.softmax(policy(torch.from_numpy(state)), -1)
            )
            action = choice.sample()
            chances.append(choice.log_prob(action))
            state = (state * 0.9 + 0.1 * np.roll(state, action.item() + 1)).astype("f")
            rewards.append(float(state[0]))
        total, returns = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        goal = torch.tensor(returns)
        goal = (goal - goal.mean()) / (goal.std() + 1e-6)
        loss = sum(-chance * value for chance, value in zip(chances, goal, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return episode, lambda function, i: function(10 + i * 7 % 5)


# what the tiers' numbers were chosen by, and what they were checked on
TUNED: dict[str, Script] = {"hooks": hooks, "masks": masks, "vae": vae, "seq2seq": seq2seq}
CHECKED: dict[str, Script] = {
    "packed_lstm": packed_lstm, "generation": generation, "gan": gan, "reinforce": reinforce,
}
SCRIPTS = TUNED | CHECKED
