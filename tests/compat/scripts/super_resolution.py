"""Super-resolution with PixelShuffle: orthogonal init, a custom Dataset, PSNR, a checkpoint."""

import os
import tempfile
from math import log10

import torch
import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        for conv in (self.conv1, self.conv2):
            init.xavier_normal_(conv.weight, init.calculate_gain("relu"))
        init.kaiming_uniform_(self.conv3.weight, a=0.1)


class Waves(Dataset):
    def __init__(self, count, size=16):
        grid = torch.linspace(0, 6, size)
        phase = torch.rand(count, 1, 1)
        self.images = torch.sin(grid.view(1, -1, 1) + phase) * torch.cos(grid.view(1, 1, -1))

    def __getitem__(self, index):
        target = self.images[index].unsqueeze(0)
        return target[:, ::2, ::2].contiguous(), target

    def __len__(self):
        return len(self.images)


def main():
    torch.manual_seed(123)
    train, test = DataLoader(Waves(24), 4, shuffle=True), DataLoader(Waves(8), 4)
    model, criterion = Net(2), nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, 4):
        epoch_loss = 0
        for input, target in train:
            optimizer.zero_grad()
            loss = criterion(model(input), target)
            epoch_loss += loss.item()
            loss.backward()
            optimizer.step()
        avg_psnr = 0
        with torch.no_grad():
            for input, target in test:
                avg_psnr += 10 * log10(1 / criterion(model(input), target).item())
        print(f"===> Epoch {epoch}: loss {epoch_loss / len(train):.5f} "
              f"PSNR {avg_psnr / len(test):.3f} dB")
    path = os.path.join(tempfile.mkdtemp(), "model.pth")
    torch.save({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    again = Net(2)
    print(again.load_state_dict(checkpoint["model"]))
    optimizer.load_state_dict(checkpoint["optimizer"])
    print(torch.equal(again(test.dataset[0][0][None]), model(test.dataset[0][0][None])))


if __name__ == "__main__":
    main()
