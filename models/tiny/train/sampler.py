"""Sampling as FLUX.2 does it: schedule, positions, guidance, Euler steps."""
import math

import torch

from world.tokenizer import TEXT_LENGTH

STEPS = 4  # of the distilled model


def schedule(steps, n_tokens):
    """Noise levels from 1 to 0; small pictures and few steps lean towards the noisy end."""
    m200, m10 = 0.00016927 * n_tokens + 0.45666666, 8.73809524e-05 * n_tokens + 1.89833333
    slope = (m200 - m10) / 190.0
    mu = m200 if n_tokens > 4300 else slope * steps + m200 - 200.0 * slope
    return [shift(1 - i / steps, mu) for i in range(steps)] + [0.0]


def shift(u, mu):
    return math.exp(mu) / (math.exp(mu) + (1 / u - 1))


def positions(h, w, n_refs=0, n_text=TEXT_LENGTH, ref_sizes=None, device="cuda"):
    """(time, row, column, word) of text, picture and reference tokens; references sit at times 10, 20, ..."""
    rows = [(0, 0, 0, k) for k in range(n_text)]
    for t, (gh, gw) in enumerate([(h, w)] + (ref_sizes or [(h, w)] * n_refs)):
        rows += [(10 * t, i, j, 0) for i in range(gh) for j in range(gw)]
    return torch.tensor(rows, dtype=torch.float32, device=device)


def velocity(flux, x, time, txt, where, refs=None, guidance=1.0, empty=None):
    """The model's velocity for x [B, N, 128]; with guidance, away from the empty prompt's."""
    n = x.shape[1]
    seq = x if refs is None else torch.cat((x, refs), 1)
    if guidance == 1.0:
        return flux(seq, txt, time, where)[:, :n].float()
    both = flux(torch.cat((seq, seq)), torch.cat((txt, empty.expand_as(txt))), torch.cat((time, time)), where)[:, :n].float()
    with_text, without = both.chunk(2)
    return without + guidance * (with_text - without)


@torch.no_grad()
def denoise(flux, x, txt, where, sigmas, refs=None, guidance=1.0, empty=None, keep=None):
    """Euler steps along the noise levels; states after the steps in `keep` are returned too."""
    kept = []
    for i, (now, then) in enumerate(zip(sigmas[:-1], sigmas[1:])):
        time = torch.full((len(x),), now, device=x.device)
        x = x + (then - now) * velocity(flux, x, time, txt, where, refs, guidance, empty)
        if keep is not None and i + 1 in keep:
            kept.append(x)
    return x if keep is None else (x, kept)
