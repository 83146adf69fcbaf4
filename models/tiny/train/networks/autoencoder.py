"""The autoencoder: AutoencoderKLFlux2, and latents as tokens."""
import torch.nn.functional as F
from torch import nn

from networks.layers import LATENT_CHANNELS, group

VAE_CHANNELS = (64, 64, 64, 64)


def conv(n_in, n_out, k=3, **kw):
    return nn.Conv2d(n_in, n_out, k, padding=kw.pop("padding", k // 2), **kw)


def group_norm(n):
    return nn.GroupNorm(32, n, eps=1e-6)


class ResBlock(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.norm1, self.conv1 = group_norm(n_in), conv(n_in, n_out)
        self.norm2, self.conv2 = group_norm(n_out), conv(n_out, n_out)
        self.nin_shortcut = conv(n_in, n_out, 1) if n_in != n_out else None

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return (x if self.nin_shortcut is None else self.nin_shortcut(x)) + h


class AttnBlock(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm, self.q, self.k, self.v, self.proj_out = group_norm(n), conv(n, n, 1), conv(n, n, 1), conv(n, n, 1), conv(n, n, 1)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2)[:, None].contiguous() for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).reshape(x.shape)
        return x + self.proj_out(out)


def middle(n):
    return group(block_1=ResBlock(n, n), attn_1=AttnBlock(n), block_2=ResBlock(n, n))


def through_middle(mid, x):
    return mid.block_2(mid.attn_1(mid.block_1(x)))


class Encoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_in, n, self.down = conv(3, channels[0]), channels[0], nn.ModuleList()
        for level, width in enumerate(channels):
            stage = group(block=nn.ModuleList([ResBlock(n, width), ResBlock(width, width)]))
            n = width
            if level < len(channels) - 1:
                stage.downsample = group(conv=conv(n, n, stride=2, padding=0))
            self.down.append(stage)
        self.mid, self.norm_out, self.conv_out = middle(n), group_norm(n), conv(n, 2 * LATENT_CHANNELS)
        self.quant_conv = conv(2 * LATENT_CHANNELS, 2 * LATENT_CHANNELS, 1)

    def forward(self, x):
        x = self.conv_in(x)
        for stage in self.down:
            for block in stage.block:
                x = block(x)
            if hasattr(stage, "downsample"):
                x = stage.downsample.conv(F.pad(x, (0, 1, 0, 1)))
        x = through_middle(self.mid, x)
        return self.quant_conv(self.conv_out(F.silu(self.norm_out(x))))


class Decoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        n, stages = channels[-1], []
        self.post_quant_conv, self.conv_in, self.mid = conv(LATENT_CHANNELS, LATENT_CHANNELS, 1), conv(LATENT_CHANNELS, n), middle(n)
        for level in reversed(range(len(channels))):
            width = channels[level]
            stage = group(block=nn.ModuleList([ResBlock(n, width), ResBlock(width, width), ResBlock(width, width)]))
            n = width
            if level > 0:
                stage.upsample = group(conv=conv(n, n))
            stages.insert(0, stage)
        self.up, self.norm_out, self.conv_out = nn.ModuleList(stages), group_norm(n), conv(n, 3)

    def forward(self, z):
        x = through_middle(self.mid, self.conv_in(self.post_quant_conv(z)))
        for stage in reversed(self.up):
            for block in stage.block:
                x = block(x)
            if hasattr(stage, "upsample"):
                x = stage.upsample.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.norm_out(x)))


class AutoEncoder(nn.Module):
    """Pictures [B, 3, H, W] in -1..1 <-> normalised latents [B, 128, H / 16, W / 16]."""

    def __init__(self, channels=VAE_CHANNELS):
        super().__init__()
        self.encoder, self.decoder = Encoder(channels), Decoder(channels)
        self.bn = nn.BatchNorm2d(4 * LATENT_CHANNELS, eps=1e-4, affine=False)

    def moments(self, x):
        return self.encoder(x.to(self.encoder.conv_in.weight.dtype)).float().chunk(2, 1)  # mean, log variance

    def encode(self, x):
        z = patchify(self.moments(x)[0])
        mean, std = self.statistics()
        return (z - mean) / std

    def decode(self, z):
        mean, std = self.statistics()
        return self.decoder(unpatchify(z * std + mean).to(self.decoder.conv_in.weight.dtype)).float()

    def statistics(self):
        mean, variance = self.bn.running_mean.float(), self.bn.running_var.float()
        return mean.view(1, -1, 1, 1), (variance + self.bn.eps).sqrt().view(1, -1, 1, 1)


def patchify(z):
    b, c, h, w = z.shape
    return z.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, 4 * c, h // 2, w // 2)


def unpatchify(z):
    b, c, h, w = z.shape
    return z.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)


def pack(z):
    return z.flatten(2).transpose(1, 2)  # [B, 128, h, w] -> [B, h * w, 128]


def unpack(tokens, h, w):
    return tokens.transpose(1, 2).unflatten(2, (h, w))
