"""Sine waves continued by LSTM cells, trained in double precision by LBFGS with a closure."""

import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 8)
        self.lstm2 = nn.LSTMCell(8, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def main():
    torch.manual_seed(0)
    x = torch.arange(12).double() + torch.randint(-8, 8, (5, 1)).double()
    data = torch.sin(x / 2.0)
    input, target = data[2:, :-1], data[2:, 1:]
    test_input, test_target = data[:2, :-1], data[:2, 1:]
    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)
    for i in range(2):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            print("loss: %.8f" % loss.item())
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            pred = seq(test_input, future=4)
            loss = criterion(pred[:, :-4], test_target)
            print("test loss: %.8f" % loss.item())
    print(["%.5f" % v for v in pred[0, -4:].tolist()])


if __name__ == "__main__":
    main()
