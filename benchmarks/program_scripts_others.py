"""More training loops as people write them: what program_scripts.py's were not tuned on.

As there, `OTHERS[name](space)` gives `step(i)`, the body of the script's loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from program_scripts import BATCHES, Step


def gan(space: SimpleNamespace) -> Step:
    """PyTorch-GAN gan: two multilayer perceptrons, two optimizers, both losses printed."""
    torch, nn = space.torch, space.nn
    latent, size = 32, 144

    def block(a: int, b: int, norm: bool = True) -> list[Any]:
        return [
            nn.Linear(a, b), *([nn.BatchNorm1d(b, 0.8)] if norm else []),
            nn.LeakyReLU(0.2, inplace=True),
        ]

    g = nn.Sequential(
        *block(latent, 64, norm=False), *block(64, 128), nn.Linear(128, size), nn.Tanh()
    )
    d = nn.Sequential(
        *block(size, 128, norm=False), *block(128, 64, norm=False), nn.Linear(64, 1), nn.Sigmoid()
    )
    criterion = nn.BCELoss()
    of_g = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_d = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = [torch.randn(32, 1, 12, 12) for _ in range(BATCHES)]

    def step(i: int) -> float:
        real = data[i % BATCHES]
        valid, fake = torch.ones(real.size(0), 1), torch.zeros(real.size(0), 1)
        of_g.zero_grad()
        made = g(torch.randn(real.shape[0], latent))
        loss_g = criterion(d(made), valid)
        loss_g.backward()
        of_g.step()
        of_d.zero_grad()
        real_loss = criterion(d(real.view(real.size(0), -1)), valid)
        fake_loss = criterion(d(made.detach()), fake)
        loss_d = (real_loss + fake_loss) / 2
        loss_d.backward()
        of_d.step()
        return loss_d.item() + loss_g.item()

    return step


def language_model(space: SimpleNamespace) -> Step:
    """yunjey language_model: an LSTM whose states are detached from batch to batch, SGD."""
    torch, nn = space.torch, space.nn
    words, width, layers, batch, length = 200, 64, 1, 10, 12

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.lstm = nn.LSTM(width, width, layers, batch_first=True)
            self.linear = nn.Linear(width, words)

        def forward(self, x: Any, h: Any) -> Any:
            out, (h, c) = self.lstm(self.embed(x), h)
            out = out.reshape(out.size(0) * out.size(1), out.size(2))
            return self.linear(out), (h, c)

    model, criterion = Model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    ids = torch.randint(0, words, (batch, length * BATCHES + 1))
    held = {"states": (torch.zeros(layers, batch, width), torch.zeros(layers, batch, width))}

    def step(i: int) -> float:
        at = i % BATCHES * length
        inputs, targets = ids[:, at:at + length], ids[:, at + 1:at + 1 + length]
        states = tuple(state.detach() for state in held["states"])
        outputs, held["states"] = model(inputs, states)
        loss = criterion(outputs, targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.item()

    return step


def actor_critic(space: SimpleNamespace) -> Step:
    """minimalRL actor_critic: one small network with two heads, single observations."""
    torch, nn, F = space.torch, space.nn, space.F

    class ActorCritic(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(4, 256)
            self.fc_pi, self.fc_v = nn.Linear(256, 2), nn.Linear(256, 1)
            self.optimizer = torch.optim.Adam(self.parameters(), lr=2e-4)

        def pi(self, x: Any, dim: int = 0) -> Any:
            return F.softmax(self.fc_pi(F.relu(self.fc1(x))), dim=dim)

        def v(self, x: Any) -> Any:
            return self.fc_v(F.relu(self.fc1(x)))

        def train_net(self, s: Any, a: Any, r: Any, following: Any, done: Any) -> float:
            target = r + 0.98 * self.v(following) * done
            delta = target - self.v(s)
            chosen = self.pi(s, dim=1).gather(1, a)
            loss = -torch.log(chosen) * delta.detach()
            loss = loss + F.smooth_l1_loss(self.v(s), target.detach())
            self.optimizer.zero_grad()
            loss.mean().backward()
            self.optimizer.step()
            return loss.mean().item()

    model = ActorCritic()
    states = [[random.Random(k).random() for _ in range(4)] for k in range(64)]

    def step(i: int) -> float:
        actions = []
        for k in range(10):
            s = torch.tensor(states[(i + k) % 64], dtype=torch.float)
            prob = model.pi(s)
            m = torch.distributions.Categorical(prob)
            actions.append([m.sample().item()])
        rows = [states[(i + k) % 64] for k in range(11)]
        s, following = torch.tensor(rows[:10]), torch.tensor(rows[1:])
        a, r = torch.tensor(actions), torch.full((10, 1), 0.01)
        return model.train_net(s, a, r, following, torch.ones(10, 1))

    return step


def siamese(space: SimpleNamespace) -> Step:
    """One network on two images, a contrastive loss of the script's own, Adagrad."""
    torch, nn, F = space.torch, space.nn, space.F

    class Siamese(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cnn = nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(8), nn.MaxPool2d(2),
                nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(16), nn.MaxPool2d(2),
            )
            self.fc = nn.Sequential(nn.Linear(16 * 49, 64), nn.ReLU(), nn.Linear(64, 8))

        def forward_once(self, x: Any) -> Any:
            return self.fc(self.cnn(x).view(x.size(0), -1))

        def forward(self, a: Any, b: Any) -> Any:
            return self.forward_once(a), self.forward_once(b)

    class Contrastive(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any, label: Any) -> Any:
            distance = F.pairwise_distance(a, b, keepdim=True)
            return torch.mean(
                (1 - label) * distance.pow(2) + label * torch.clamp(2.0 - distance, min=0.0).pow(2)
            )

    net, criterion = Siamese(), Contrastive()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=5e-4)
    data = [
        (torch.randn(8, 1, 28, 28), torch.randn(8, 1, 28, 28), torch.randint(0, 2, (8, 1)).float())
        for _ in range(BATCHES)
    ]

    def step(i: int) -> float:
        a, b, label = data[i % BATCHES]
        optimizer.zero_grad()
        first, second = net(a, b)
        loss = criterion(first, second, label)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def accumulation(space: SimpleNamespace) -> Step:
    """Four small batches to a step, gradients clipped by value, RMSprop and a schedule."""
    torch, nn = space.torch, space.nn
    model = nn.Sequential(
        nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64),
        nn.GELU(), nn.Linear(64, 5),
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    data = [(torch.randn(16, 20), torch.randint(0, 5, (16,))) for _ in range(BATCHES)]

    def step(i: int) -> float:
        total = 0.0
        optimizer.zero_grad()
        for k in range(4):
            x, y = data[(i + k) % BATCHES]
            loss = criterion(model(x), y) / 4
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return total

    return step


def translation(space: SimpleNamespace) -> Step:
    """pytorch tutorial seq2seq_translation: an encoder and a decoder called word by word, teacher
    forcing by random.random(), two optimizers, one sentence a step."""
    torch, nn, F = space.torch, space.nn, space.F
    words, width, longest = 60, 64, 10

    class Encoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.gru = nn.Embedding(words, width), nn.GRU(width, width)

        def forward(self, word: Any, hidden: Any) -> Any:
            return self.gru(self.embedding(word).view(1, 1, -1), hidden)

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.dropout = nn.Embedding(words, width), nn.Dropout(0.1)
            self.attn, self.combine = nn.Linear(2 * width, longest), nn.Linear(2 * width, width)
            self.gru, self.out = nn.GRU(width, width), nn.Linear(width, words)

        def forward(self, word: Any, hidden: Any, outputs: Any) -> Any:
            embedded = self.dropout(self.embedding(word).view(1, 1, -1))
            weights = F.softmax(self.attn(torch.cat((embedded[0], hidden[0]), 1)), dim=1)
            applied = torch.bmm(weights.unsqueeze(0), outputs.unsqueeze(0))
            mixed = self.combine(torch.cat((embedded[0], applied[0]), 1)).unsqueeze(0)
            output, hidden = self.gru(F.relu(mixed), hidden)
            return F.log_softmax(self.out(output[0]), dim=1), hidden, weights

    encoder, decoder, criterion = Encoder(), Decoder(), nn.NLLLoss()
    of_encoder = torch.optim.SGD(encoder.parameters(), lr=0.01)
    of_decoder = torch.optim.SGD(decoder.parameters(), lr=0.01)
    random_ = random.Random(0)
    lengths = [5, 8, 6, 7]
    data = [
        (torch.randint(2, words, (n, 1)), torch.randint(2, words, (n, 1)))
        for n in lengths for _ in range(2)
    ]

    def step(i: int) -> float:
        source, target = data[i % len(data)]
        hidden = torch.zeros(1, 1, width)
        of_encoder.zero_grad()
        of_decoder.zero_grad()
        outputs = torch.zeros(longest, width)
        for k in range(source.size(0)):
            output, hidden = encoder(source[k], hidden)
            outputs[k] = output[0, 0]
        word, loss = torch.tensor([[0]]), 0
        forced = random_.random() < 0.5
        for k in range(target.size(0)):
            output, hidden, _ = decoder(word, hidden, outputs)
            loss += criterion(output, target[k])
            if forced:
                word = target[k]
            else:
                word = output.topk(1)[1].squeeze().detach()
                if word.item() == 1:
                    break
        loss.backward()
        of_encoder.step()
        of_decoder.step()
        return loss.item() / target.size(0)

    return step


OTHERS: dict[str, Callable[[SimpleNamespace], Step]] = {
    f.__name__: f for f in (gan, language_model, actor_critic, siamese, accumulation, translation)
}
