"""The transformer: Flux2, double and single stream blocks."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from networks.layers import LATENT_CHANNELS, frequencies, group, linear


@dataclass
class FluxConfig:
    hidden: int = 256
    heads: int = 4
    double: int = 2
    single: int = 4
    context: int = 768


class HeadNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))


def head_norms(size):
    return group(query_norm=HeadNorm(size), key_norm=HeadNorm(size))


def swap(x):
    """Neighbouring channels trade places."""
    return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def turn(qkv, heads, norm, cos, sin):
    """[B, L, 3 * hidden] -> q and k [B, L, 2, heads, D], normalised, scaled and turned to their positions, and v [B, L, heads, D].

    A pair (x, y) of channels with scales (u, w) turns into (u x cos - w y sin, w y cos + u x sin), so scaling and turning
    are one product with the pair and one with the swapped pair. cos, sin [L, D], the sines with alternating sign.
    """
    qk, v = qkv.unflatten(-1, (3, heads, -1)).split((2, 1), 2)
    scale = torch.stack((norm.query_norm.scale, norm.key_norm.scale))[:, None]  # [2, 1, D]
    straight, crossed = scale * cos[:, None, None], swap(scale) * sin[:, None, None]
    qk = F.rms_norm(qk, qk.shape[-1:], eps=1e-6)
    return torch.addcmul(qk * straight.to(qk.dtype), swap(qk), crossed.to(qk.dtype)), v.squeeze(2)


def attend(qk, v):
    q, k = qk.unbind(2)
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2)


def modulate(x, shift, scale):
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class DoubleBlock(nn.Module):
    """Image and text keep their own weights and meet in attention."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        for s in ("img", "txt"):
            setattr(self, f"{s}_attn", group(qkv=linear(hidden, 3 * hidden), norm=head_norms(hidden // heads), proj=linear(hidden, hidden)))
            setattr(self, f"{s}_mlp", nn.ModuleList([linear(hidden, 6 * hidden), nn.Identity(), linear(3 * hidden, hidden)]))

    def forward(self, img, txt, mod_img, mod_txt, cos, sin):
        i, t, n = mod_img.chunk(6, -1), mod_txt.chunk(6, -1), txt.shape[1]  # shift, scale, gate of attention, then of the MLP
        qk_img, v_img = turn(self.img_attn.qkv(modulate(img, i[0], i[1])), self.heads, self.img_attn.norm, cos[n:], sin[n:])
        qk_txt, v_txt = turn(self.txt_attn.qkv(modulate(txt, t[0], t[1])), self.heads, self.txt_attn.norm, cos[:n], sin[:n])
        out = attend(torch.cat((qk_txt, qk_img), 1), torch.cat((v_txt, v_img), 1))
        img = torch.addcmul(img, i[2], self.img_attn.proj(out[:, n:]))
        img = torch.addcmul(img, i[5], self.img_mlp[2](swiglu(self.img_mlp[0](modulate(img, i[3], i[4])))))
        txt = torch.addcmul(txt, t[2], self.txt_attn.proj(out[:, :n]))
        txt = torch.addcmul(txt, t[5], self.txt_mlp[2](swiglu(self.txt_mlp[0](modulate(txt, t[3], t[4])))))
        return img, txt


class SingleBlock(nn.Module):
    """One stream; attention and MLP side by side."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.hidden, self.heads = hidden, heads
        self.linear1 = linear(hidden, 9 * hidden)
        self.linear2 = linear(4 * hidden, hidden)
        self.norm = head_norms(hidden // heads)

    def forward(self, x, mod, cos, sin):
        shift, scale, gate = mod.chunk(3, -1)
        qkv, mlp = self.linear1(modulate(x, shift, scale)).split((3 * self.hidden, 6 * self.hidden), -1)
        out = attend(*turn(qkv, self.heads, self.norm, cos, sin))
        return torch.addcmul(x, gate, self.linear2(torch.cat((out, swiglu(mlp)), -1)))


class Flux2(nn.Module):
    """Tokens [B, N, 128], text [B, L, context], time [B] in 0..1, positions [L + N, 4] -> velocity [B, N, 128]."""

    def __init__(self, c=FluxConfig()):
        super().__init__()
        self.config, h = c, c.hidden
        self.img_in, self.txt_in = linear(4 * LATENT_CHANNELS, h), linear(c.context, h)
        self.time_in = group(in_layer=linear(256, h), out_layer=linear(h, h))
        self.double_stream_modulation_img = group(lin=linear(h, 6 * h))
        self.double_stream_modulation_txt = group(lin=linear(h, 6 * h))
        self.single_stream_modulation = group(lin=linear(h, 3 * h))
        self.double_blocks = nn.ModuleList(DoubleBlock(h, c.heads) for _ in range(c.double))
        self.single_blocks = nn.ModuleList(SingleBlock(h, c.heads) for _ in range(c.single))
        self.final_layer = group(linear=linear(h, 4 * LATENT_CHANNELS), adaLN_modulation=nn.ModuleList([nn.Identity(), linear(h, 2 * h)]))
        for lin in (self.double_stream_modulation_img.lin, self.double_stream_modulation_txt.lin, self.single_stream_modulation.lin,
                    self.final_layer.adaLN_modulation[1], self.final_layer.linear):
            nn.init.zeros_(lin.weight)  # every block starts as the identity

    def forward(self, x, txt, time, positions):
        c, n_txt, dtype = self.config, txt.shape[1], self.img_in.weight.dtype
        angle = 1000 * time.float()[:, None] * frequencies(10000, 256, x.device)
        vec = self.time_in.in_layer(torch.cat((angle.cos(), angle.sin()), -1).to(dtype))
        vec = F.silu(self.time_in.out_layer(F.silu(vec)))[:, None]
        angle = (positions.float()[:, :, None] * frequencies(2000, c.hidden // c.heads // 4, x.device)).flatten(1)
        cos, sin = angle.cos(), angle.sin()  # [L + N, head_dim / 2]
        cos, sin = torch.stack((cos, cos), -1).flatten(1), torch.stack((-sin, sin), -1).flatten(1)

        img, txt = self.img_in(x.to(dtype)), self.txt_in(txt.to(dtype))
        mod_img, mod_txt = self.double_stream_modulation_img.lin(vec), self.double_stream_modulation_txt.lin(vec)
        for block in self.double_blocks:
            img, txt = block(img, txt, mod_img, mod_txt, cos, sin)
        x, mod = torch.cat((txt, img), 1), self.single_stream_modulation.lin(vec)
        for block in self.single_blocks:
            x = block(x, mod, cos, sin)
        shift, scale = self.final_layer.adaLN_modulation[1](vec).chunk(2, -1)
        return self.final_layer.linear(modulate(x[:, n_txt:], shift, scale))
