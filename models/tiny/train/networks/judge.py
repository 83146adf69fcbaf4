"""The judge: a classifier that measures what the others draw."""
import torch
import torch.nn.functional as F
from torch import nn

from world.scene import LABEL_SIZES


class Judge(nn.Module):
    """Reads a scene's attributes off a picture; used only to measure."""

    def __init__(self):
        super().__init__()
        layers = []
        for n_in, n_out, stride in ((3, 48, 2), (48, 96, 2), (96, 96, 1), (96, 160, 2), (160, 160, 1), (160, 160, 2)):
            layers += [nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
        self.trunk = nn.Sequential(*layers, nn.Flatten(), nn.Linear(160 * 64, 512), nn.ReLU(), nn.Linear(512, sum(LABEL_SIZES)))

    def forward(self, pictures):
        return self.trunk(F.interpolate(pictures, (128, 128), mode="area")).float().split(LABEL_SIZES, 1)

    def labels(self, pictures):
        return torch.stack([head.argmax(1) for head in self(pictures)], 1)
