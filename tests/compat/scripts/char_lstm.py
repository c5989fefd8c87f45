"""A character-level LSTM with carried state, gradient clipping and sampling."""

import math

import torch
from torch import nn

TEXT = (
    "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. "
    "how vexingly quick daft zebras jump. sphinx of black quartz, judge my vow. "
) * 4


class CharLSTM(nn.Module):
    def __init__(self, vocabulary, embedding=16, hidden=32, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, embedding)
        self.rnn = nn.LSTM(embedding, hidden, layers, dropout=0.1, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        self.layers, self.hidden = layers, hidden
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x, state):
        out, state = self.rnn(self.encoder(x), state)
        return self.decoder(out), state

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.layers, batch, self.hidden),
            weight.new_zeros(self.layers, batch, self.hidden),
        )


def detach(state):
    return tuple(s.detach() for s in state)


def main():
    torch.manual_seed(1111)
    alphabet = sorted(set(TEXT))
    index = {c: i for i, c in enumerate(alphabet)}
    ids = torch.tensor([index[c] for c in TEXT], dtype=torch.long)
    batch, steps = 4, 16
    columns = ids[: ids.size(0) // batch * batch].view(batch, -1)
    model = CharLSTM(len(alphabet))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        model.train()
        state, total, count = model.init_hidden(batch), 0.0, 0
        for i in range(0, columns.size(1) - steps - 1, steps):
            x, y = columns[:, i : i + steps], columns[:, i + 1 : i + 1 + steps]
            state = detach(state)
            optimizer.zero_grad()
            out, state = model(x, state)
            loss = criterion(out.reshape(-1, len(alphabet)), y.reshape(-1))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} loss {total / count:.5f} ppl {math.exp(total / count):.3f}"
              f" norm {float(norm):.5f}")
    model.eval()
    with torch.no_grad():
        state, x = model.init_hidden(1), torch.tensor([[index["t"]]])
        sample = "t"
        for _ in range(12):
            out, state = model(x, state)
            x = torch.multinomial(out[0, -1].div(0.8).exp(), 1).view(1, 1)
            sample += alphabet[x.item()]
    print(sample)


if __name__ == "__main__":
    main()
