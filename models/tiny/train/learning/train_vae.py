"""The autoencoder's training."""
import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from files import FILES
from learning.clock import Clock, ramp, say
from learning.learner import Learner
from learning.replay import Replay
from networks.autoencoder import AutoEncoder, patchify
from pixels import to_input


def psnr(a, b):
    return -10 * math.log10(max(1e-12, (a - b).square().mean().item()))


def crops(pictures, n, size):
    """n random pieces [n, 3, size, size] of random pictures."""
    device, side = pictures.device, pictures.shape[-1]
    i = torch.randint(len(pictures), (n,), device=device)
    if size == side:
        return pictures[i]
    at = torch.randint(side - size + 1, (2, n, 1), device=device) + torch.arange(size, device=device)
    channel = torch.arange(3, device=device).view(1, 3, 1, 1)
    return pictures[i.view(n, 1, 1, 1), channel, at[0].view(n, 1, size, 1), at[1].view(n, 1, 1, size)]


@torch.no_grad()
def set_statistics(vae, pictures):
    """Mean and variance of the latents, rounded as the file will have them."""
    z = torch.cat([patchify(vae.moments(to_input(pictures[i:i + 256]))[0]) for i in range(0, min(8192, len(pictures)), 256)])
    vae.bn.running_mean.copy_(z.mean((0, 2, 3)).bfloat16())
    vae.bn.running_var.copy_(z.var((0, 2, 3)).bfloat16())


@torch.no_grad()
def measure(vae, pictures):
    """PSNR in dB of decoded pictures, without and with noise on the latents."""
    x = to_input(pictures[:256])
    z = vae.encode(x)
    return [psnr(vae.decode(q).clamp(-1, 1) / 2, x / 2) for q in (z, z + 0.1 * torch.randn_like(z))]


def train_vae(pools, seconds, start):
    """Pieces of pictures and whole ones in turn. Returns the state and numbers about the training."""
    vae = AutoEncoder().cuda()
    if start:
        vae.load_state_dict(load_file(start / FILES["vae"]), strict=False)
    pictures, side = pools["square"].pictures, pools["square"].h
    learner = Learner((vae,), 0.0, 1e-3, average=0.998, beta2=0.99)

    def step(n, size):
        x = to_input(crops(pictures, n, size))
        mean, logvar = vae.moments(x)
        sigma = 0.25 * torch.rand(n, 1, 1, 1, device="cuda")  # the decoder learns to bear errors of the sampler
        error = vae.decoder((mean + sigma * torch.randn_like(mean)).to(learner.live.dtype)).float() - x
        edges = (error[..., 1:] - error[..., :-1]).abs().mean() + (error[..., 1:, :] - error[..., :-1, :]).abs().mean()
        loss = edges
        for e in (error, F.avg_pool2d(error, 4), F.avg_pool2d(error, 16)):
            loss = loss + 0.7 * e.abs().mean() + 2 * e.square().mean()
        learner.descend(loss + 5e-4 * mean.square().mean() + 1e-4 * (logvar + 4).square().mean())
        return torch.stack((error.abs().mean(), edges, mean.std())).detach()

    pool = torch.cuda.graph_pool_handle()
    pieces, whole = Replay(pool, lambda: step(20, side // 2)), Replay(pool, lambda: step(5, side))
    clock, steps = Clock(seconds), 0
    while clock.fraction() < 1:
        learner.factor.fill_(ramp(clock.fraction(), steps, 100, 0.3))
        out = (whole if steps % 2 or clock.fraction() > 0.8 else pieces)()
        steps += 1
        if steps % 10 == 0:
            torch.cuda.synchronize()
        if steps % 1000 == 0 or steps in (10, 100):
            l1, edges, std = out.tolist()
            say(f"vae step {steps} ({100 * clock.fraction():.0f}%): L1 {l1:.4f} edges {edges:.4f} latent std {std:.2f}")
    learner.finish()
    set_statistics(vae, pictures)
    clean, noisy = measure(vae, pictures)
    say(f"vae: {steps} steps, PSNR {clean:.2f} dB, with noise 0.1 on the latents {noisy:.2f} dB")
    return vae.state_dict(), {"steps": steps, "seconds": round(clock.spent()), "psnr_db": round(clean, 2), "psnr_noisy_db": round(noisy, 2)}
