"""Training loops as people write them, in the style of the programs of docs/programs.md.

`PROGRAMS[name](space)` makes model, data and optimizer after `seed 0` and gives `step(i)`, the body
of the script's loop, which returns the loss as a number. `space` has torch, nn and F.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Step = Callable[[int], float]
BATCHES = 8  # different ones, in turn


def mnist(space: SimpleNamespace) -> Step:
    """pytorch/examples mnist: two convolutions, dropout, Adadelta."""
    torch, nn, F = space.torch, space.nn, space.F

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.conv2(F.relu(self.conv1(x))))
            x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)

    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    data = [(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))) for _ in range(BATCHES)]

    def step(i: int) -> float:
        x, y = data[i % BATCHES]
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def vae(space: SimpleNamespace) -> Step:
    """pytorch/examples vae: the loss is a function of four tensors."""
    torch, nn, F = space.torch, space.nn, space.F

    class VAE(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc21, self.fc22 = (
                nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
            )
            self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x: Any) -> Any:
            h = F.relu(self.fc1(x.view(-1, 784)))
            mu, logvar = self.fc21(h), self.fc22(h)
            std = torch.exp(0.5 * logvar)
            z = mu + torch.randn_like(std) * std
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = [torch.rand(128, 1, 28, 28) for _ in range(BATCHES)]

    def loss_function(recon: Any, x: Any, mu: Any, logvar: Any) -> Any:
        bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
        return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())

    def step(i: int) -> float:
        x = data[i % BATCHES]
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def dcgan(space: SimpleNamespace) -> Step:
    """pytorch/examples dcgan, narrower: two Modules, three backward passes a step."""
    torch, nn = space.torch, space.nn

    def up(a: int, b: int, stride: int, pad: int) -> list[Any]:
        return [nn.ConvTranspose2d(a, b, 4, stride, pad, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    def down(a: int, b: int) -> list[Any]:
        return [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]

    g = nn.Sequential(
        *up(64, 64, 1, 0), *up(64, 32, 2, 1), *up(32, 16, 2, 1),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )
    d = nn.Sequential(
        *down(3, 16), *down(16, 32), *down(32, 64), nn.Conv2d(64, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    criterion = nn.BCELoss()
    first = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = [torch.randn(16, 3, 32, 32) for _ in range(BATCHES)]

    def step(i: int) -> float:
        d.zero_grad()
        real = data[i % BATCHES]
        label = torch.full((16,), 1.0)
        error_real = criterion(d(real).view(-1), label)
        error_real.backward()
        fake = g(torch.randn(16, 64, 1, 1))
        label.fill_(0.0)
        error_fake = criterion(d(fake.detach()).view(-1), label)
        error_fake.backward()
        first.step()
        g.zero_grad()
        label.fill_(1.0)
        error = criterion(d(fake).view(-1), label)
        error.backward()
        second.step()
        return (error_real + error_fake).item() + error.item()

    return step


def word_lstm(space: SimpleNamespace) -> Step:
    """pytorch/examples word_language_model: clipping, and updates by hand."""
    torch, nn, F = space.torch, space.nn, space.F
    words, width = 1000, 128

    class RNN(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(words, width)
            self.rnn = nn.LSTM(width, width, 2, dropout=0.2)
            self.decoder = nn.Linear(width, words)

        def forward(self, x: Any, hidden: Any) -> Any:
            out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
            decoded = self.decoder(self.drop(out)).view(-1, words)
            return F.log_softmax(decoded, dim=1), hidden

    model, criterion = RNN(), nn.NLLLoss()
    data = [torch.randint(0, words, (36, 20)) for _ in range(BATCHES)]
    held = {"hidden": (torch.zeros(2, 20, width), torch.zeros(2, 20, width))}

    def step(i: int) -> float:
        source = data[i % BATCHES]
        model.zero_grad()
        hidden = tuple(h.detach() for h in held["hidden"])
        output, held["hidden"] = model(source[:35], hidden)
        loss = criterion(output, source[1:].view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-2.0)
        return loss.item()

    return step


def seq2seq(space: SimpleNamespace) -> Step:
    """nlp-tutorial Seq2Seq with attention: Python loops over words and scores, one sentence."""
    torch, nn, F = space.torch, space.nn, space.F
    words, width, length = 11, 128, 5

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.enc_cell, self.dec_cell = nn.RNN(words, width), nn.RNN(words, width)
            self.attn, self.out = nn.Linear(width, width), nn.Linear(2 * width, words)

        def forward(self, enc: Any, hidden: Any, dec: Any) -> Any:
            enc, dec = enc.transpose(0, 1), dec.transpose(0, 1)
            encoded, hidden = self.enc_cell(enc, hidden)
            trained, model = [], torch.empty([len(dec), 1, words])
            for i in range(len(dec)):
                out, hidden = self.dec_cell(dec[i].unsqueeze(0), hidden)
                weights = self.weights(out, encoded)
                trained.append(weights.squeeze().data.numpy())
                context = weights.bmm(encoded.transpose(0, 1)).squeeze(1)
                model[i] = self.out(torch.cat((out.squeeze(0), context), 1))
            return model.transpose(0, 1).squeeze(0), trained

        def weights(self, out: Any, encoded: Any) -> Any:
            scores = torch.zeros(len(encoded))
            for i in range(len(encoded)):
                score = self.attn(encoded[i])
                scores[i] = torch.dot(out.squeeze(0).view(-1), score.view(-1))
            return F.softmax(scores, dim=0).view(1, 1, -1)

    model, criterion = Attention(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    eye, hidden = torch.eye(words), torch.zeros(1, 1, width)
    enc = eye[torch.randint(0, words, (1, length))]
    dec = eye[torch.randint(0, words, (1, length))]
    target = torch.randint(0, words, (1, length))

    def step(i: int) -> float:
        optimizer.zero_grad()
        output, _ = model(enc, hidden, dec)
        loss = criterion(output, target.squeeze(0))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def dqn(space: SimpleNamespace) -> Step:
    """cleanrl dqn: a small network, its twin, and single observations."""
    torch, nn, F = space.torch, space.nn, space.F

    def network() -> Any:
        return nn.Sequential(
            nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)
        )

    q, twin = network(), network()
    twin.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=2.5e-4)
    data = [
        (torch.randn(128, 4), torch.randint(0, 2, (128, 1)), torch.randn(128), torch.randn(128, 4))
        for _ in range(BATCHES)
    ]

    def step(i: int) -> float:
        for k in range(10):  # the environment's steps between two updates
            torch.argmax(q(data[k % BATCHES][0][:1]), dim=1).numpy()
        x, action, reward, following = data[i % BATCHES]
        with torch.no_grad():
            goal = reward + 0.99 * twin(following).max(dim=1)[0]
        loss = F.mse_loss(goal, q(x).gather(1, action).squeeze())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def feedforward(space: SimpleNamespace) -> Step:
    """yunjey feedforward_neural_network."""
    torch, nn = space.torch, space.nn
    model = nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    data = [(torch.randn(100, 784), torch.randint(0, 10, (100,))) for _ in range(BATCHES)]

    def step(i: int) -> float:
        x, y = data[i % BATCHES]
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def regression(space: SimpleNamespace) -> Step:
    """pytorch/examples regression: a handful of weights, updated by hand."""
    torch, nn, F = space.torch, space.nn, space.F
    model = nn.Linear(4, 1)
    weights, bias = torch.randn(4, 1) * 5, torch.randn(1) * 5

    def step(i: int) -> float:
        x = torch.randn(32).unsqueeze(1)
        x = torch.cat([x**k for k in range(1, 5)], 1)
        y = x.mm(weights) + bias.item()
        model.zero_grad()
        output = F.smooth_l1_loss(model(x), y)
        loss = output.item()
        output.backward()
        for param in model.parameters():
            param.data.add_(-0.1 * param.grad)
        return loss

    return step


def vit(space: SimpleNamespace) -> Step:
    """A vision transformer in the manner of vit-pytorch's SimpleViT, with Adam."""
    torch, nn, F = space.torch, space.nn, space.F
    width, heads = 64, 4

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.feed = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width)
            )

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = (
                t.view(b, n, heads, -1).transpose(1, 2)
                for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
            )
            attention = (q @ k.transpose(-1, -2) * (width // heads) ** -0.5).softmax(dim=-1)
            x = x + self.out((attention @ v).transpose(1, 2).reshape(b, n, width))
            return x + self.feed(x)

    class ViT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, width, 8, 8)
            self.position = nn.Parameter(torch.randn(16, width) * 0.02)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2) + self.position
            return self.head(self.blocks(x).mean(dim=1))

    model = ViT()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = [(torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))) for _ in range(BATCHES)]

    def step(i: int) -> float:
        x, y = data[i % BATCHES]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def resnet(space: SimpleNamespace) -> Step:
    """kuangliu's ResNet, short: SGD with momentum and weight decay, statistics of the batch."""
    torch, nn, F = space.torch, space.nn, space.F

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(a, b, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(b), nn.BatchNorm2d(b)
            self.shortcut = nn.Sequential()
            if stride != 1 or a != b:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)
                )

        def forward(self, x: Any) -> Any:
            out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(out + self.shortcut(x))

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1),
        Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    data = [(torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))) for _ in range(BATCHES)]
    told = {"loss": 0.0, "right": 0}

    def step(i: int) -> float:
        x, y = data[i % BATCHES]
        optimizer.zero_grad()
        outputs = model(x)
        loss = criterion(outputs, y)
        loss.backward()
        optimizer.step()
        told["loss"] += loss.item()
        _, predicted = outputs.max(1)
        told["right"] += predicted.eq(y).sum().item()
        return loss.item()

    return step


def reinforce(space: SimpleNamespace) -> Step:
    """pytorch/examples reinforce: an episode of single observations, then one update."""
    torch, nn, F = space.torch, space.nn, space.F

    class Policy(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.affine1, self.dropout = nn.Linear(4, 128), nn.Dropout(p=0.6)
            self.affine2 = nn.Linear(128, 2)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.dropout(self.affine1(x)))
            return F.softmax(self.affine2(x), dim=1)

    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    states = torch.randn(64, 1, 4)
    rewards = [random.Random(0).random() for _ in range(20)]

    def step(i: int) -> float:
        chances = []
        for k in range(20):
            m = torch.distributions.Categorical(policy(states[(i + k) % 64]))
            action = m.sample()
            chances.append(m.log_prob(action))
            action.item()
        total, returns = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        goal = torch.tensor(returns)
        goal = (goal - goal.mean()) / (goal.std() + 1e-6)
        losses = [-chance * value for chance, value in zip(chances, goal, strict=True)]
        optimizer.zero_grad()
        loss = torch.cat(losses).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PROGRAMS: dict[str, Callable[[SimpleNamespace], Step]] = {
    f.__name__: f for f in (
        mnist, vae, dcgan, word_lstm, seq2seq, dqn, feedforward, regression, vit, resnet, reinforce
    )
}
