"""What several networks share. Attribute names give the tensor names of the original checkpoints."""
import math

import torch
import torch.nn.functional as F
from torch import nn

LATENT_CHANNELS = 32


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def group(**modules):
    """A module with the given children and no code of its own."""
    m = nn.Module()
    for name, child in modules.items():
        setattr(m, name, child)
    return m


def frequencies(base, size, device):
    """Of rotary positions: base ** (-2 i / size)."""
    return torch.exp(-math.log(base) * torch.arange(0, size, 2, device=device).float() / size)
