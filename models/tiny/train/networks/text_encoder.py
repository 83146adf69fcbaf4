"""The text encoder: Qwen3."""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from networks.layers import Norm, frequencies, group, linear
from world.tokenizer import VOCABULARY


@dataclass
class TextConfig:
    vocabulary: int = VOCABULARY
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ff: int = 256
    taps: tuple = (1, 2, 3)  # conditioning: hidden states after these layers


def turn_halves(x, cos, sin):
    """Rotary positions of language models: channel i turns with channel i + head_dim / 2."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def repeat_heads(x, heads):
    """[B, L, kv_heads, D] -> [B, L, heads, D]; each key and value head serves neighbouring queries."""
    b, n, kv, d = x.shape
    return x[:, :, :, None].expand(b, n, kv, heads // kv, d).reshape(b, n, heads, d)


class TextLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.input_layernorm = Norm(c.hidden)
        self.self_attn = group(q_proj=linear(c.hidden, c.heads * c.head_dim), k_proj=linear(c.hidden, c.kv_heads * c.head_dim),
                               v_proj=linear(c.hidden, c.kv_heads * c.head_dim), o_proj=linear(c.heads * c.head_dim, c.hidden),
                               q_norm=Norm(c.head_dim), k_norm=Norm(c.head_dim))
        self.post_attention_layernorm = Norm(c.hidden)
        self.mlp = group(gate_proj=linear(c.hidden, c.ff), up_proj=linear(c.hidden, c.ff), down_proj=linear(c.ff, c.hidden))

    def forward(self, x, mask, cos, sin):
        """x [B, L, hidden], mask [B, 1, L, L] to be added to the scores, cos and sin [L, 1, head_dim / 2]."""
        a, (b, n, _) = self.self_attn, x.shape
        h = self.input_layernorm(x)
        q = a.q_norm(a.q_proj(h).view(b, n, self.heads, self.head_dim))
        k = a.k_norm(a.k_proj(h).view(b, n, self.kv_heads, self.head_dim))
        v = a.v_proj(h).view(b, n, self.kv_heads, self.head_dim)
        q, k = turn_halves(q, cos, sin).to(x.dtype), turn_halves(k, cos, sin).to(x.dtype)
        k, v = repeat_heads(k, self.heads), repeat_heads(v, self.heads)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k).float() / math.sqrt(self.head_dim) + mask
        h = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1).to(v.dtype), v).reshape(b, n, -1)
        x = x + a.o_proj(h)
        h = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(h)) * self.mlp.up_proj(h))


class TextEncoder(nn.Module):
    """Qwen3: token ids [B, L] -> features [B, L, 3 * hidden]."""

    def __init__(self, c=TextConfig()):
        super().__init__()
        self.config = c
        self.model = group(embed_tokens=nn.Embedding(c.vocabulary, c.hidden), layers=nn.ModuleList(TextLayer(c) for _ in range(c.layers)),
                           norm=Norm(c.hidden))
        nn.init.normal_(self.model.embed_tokens.weight, std=0.05)

    def hidden_states(self, tokens, n_real, depth):
        c, n = self.config, tokens.shape[1]
        at = torch.arange(n, device=tokens.device)
        seen = (at[None, :] <= at[:, None])[None] & (at[None, :] < n_real[:, None])[:, None]  # [B, query, key]
        mask = torch.zeros(seen.shape, device=tokens.device).masked_fill(~seen, -1e9)[:, None]
        angle = at[:, None].float() * frequencies(1e6, c.head_dim, tokens.device)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        states = [self.model.embed_tokens(tokens)]
        for layer in self.model.layers[:depth]:
            states.append(layer(states[-1], mask, cos, sin))
        return states

    def forward(self, tokens, n_real):
        states = self.hidden_states(tokens, n_real, max(self.config.taps))
        return torch.cat([states[k] for k in self.config.taps], -1)

    def features_and_loss(self, tokens, n_real):
        """Also the next-token loss: it keeps the layers above the last tap, which klein never uses, a language model."""
        states = self.hidden_states(tokens, n_real, self.config.layers)
        logits = F.linear(self.model.norm(states[-1][:, :-1]), self.model.embed_tokens.weight).float()
        real = torch.arange(1, tokens.shape[1], device=tokens.device)[None] < n_real[:, None]
        target = tokens[:, 1:].masked_fill(~real, -100)
        return torch.cat([states[k] for k in self.config.taps], -1), F.cross_entropy(logits.flatten(0, 1), target.flatten())


def real_tokens(tokens, pad):
    return (tokens != pad).sum(1)
