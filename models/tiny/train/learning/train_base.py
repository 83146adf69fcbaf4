"""The base model's training: rectified flow, together with the text encoder."""
import math
import random

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from files import FILES
from learning.clock import Clock, ramp, say
from learning.learner import Learner, stop_if_out_of_time
from learning.replay import Replay
from networks.text_encoder import TextEncoder, real_tokens
from networks.transformer import Flux2
from sampler import velocity

# What a training step may be: kind, bucket, examples, how often.
MIX = [("t2i", "square", 176, .50), ("t2i", "wide", 224, .06), ("t2i", "tall", 224, .06), ("edit", "square", 104, .24),
       ("edit", "wide", 128, .03), ("edit", "tall", 128, .03), ("merge", "square", 72, .08)]


def flow_loss(text, flux, clean, refs, tokens, where, empty, pad):
    """Rectified flow at a random time, with some captions dropped; and the text encoder's own loss."""
    n, device = len(clean), clean.device
    tokens = torch.where(torch.rand(n, 1, device=device) < 0.1, empty, tokens)
    time = torch.rand(n, device=device).clamp(min=1e-4)
    time = math.exp(1.4) / (math.exp(1.4) + 1 / time - 1)  # leans to the noisy end, as sampling will
    noise = torch.randn_like(clean)
    features, language = text.features_and_loss(tokens, real_tokens(tokens, pad))
    v = velocity(flux, torch.lerp(clean, noise, time[:, None, None]), time, features, where, refs)
    return F.mse_loss(v, noise - clean), language


def train_base(pools, words, seconds, partial, start, lr_muon=4e-3, lr_adam=1.5e-3):
    """The text encoder learns along with the transformer."""
    text, flux = TextEncoder().cuda(), Flux2().cuda()
    if start:
        text.load_state_dict(load_file(start / FILES["text"]))
        flux.load_state_dict(load_file(start / FILES["base"]))
    learner = Learner((text, flux), lr_muon, lr_adam, average=0.9995)
    used, done = 0.0, 0
    if partial.exists():
        state = torch.load(partial, map_location="cuda")
        learner.restore(state["learner"])
        used, done = state["used"], state["steps"]
        say(f"base continues at step {done}")
    empty = torch.from_numpy(words([""])).long().cuda()

    def recorded(kind, bucket, n):
        def step():
            clean, refs, tokens, where = pools[bucket].batch(kind, n)
            flow, language = flow_loss(text, flux, clean, refs, tokens, where, empty, words.pad)
            learner.descend(flow + 0.03 * language)
            return torch.stack((flow, language)).detach()
        return Replay(pool, step)

    pool = torch.cuda.graph_pool_handle()
    learner.factor.fill_(0.01)
    steps = {m[:2]: recorded(*m[:3]) for m in MIX}
    say("base: steps recorded")
    clock, recent = Clock(seconds, used), {}
    while clock.fraction() < 1:
        kind, bucket = random.choices(MIX, [m[3] for m in MIX])[0][:2]
        learner.factor.fill_(ramp(clock.fraction(), done))
        out = steps[kind, bucket]()
        total = recent.setdefault(kind, torch.zeros(3, device="cuda"))
        total[:2] += out
        total[2] += 1
        done += 1
        if done % 10 == 0:
            stop_if_out_of_time(learner, clock, done, partial)
        if done % 1000 == 0 or done in (10, 200, 500):
            losses = ", ".join(f"{k} {(t[0] / t[2]).item():.4f}" for k, t in sorted(recent.items()))
            words_loss = sum(t[1].item() for t in recent.values()) / sum(t[2].item() for t in recent.values())
            say(f"base step {done} ({100 * clock.fraction():.0f}%) flow: {losses}; language {words_loss:.3f}")
            recent = {}
    learner.finish()
    say(f"base: {done} steps in {clock.spent():.0f} s")
    return {"text": text.state_dict(), "flux": flux.state_dict()}, {"steps": done, "seconds": round(clock.spent())}
