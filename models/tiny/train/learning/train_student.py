"""The distilled model's training: four steps that follow the guided base model's twenty."""
import functools
import math
import random

import torch
import torch.nn.functional as F

from learning.clock import Clock, ramp, say
from learning.learner import Learner, point_into, stop_if_out_of_time
from learning.replay import Replay
from networks.text_encoder import TextEncoder, real_tokens
from networks.transformer import Flux2
from sampler import STEPS, schedule, shift, velocity

SUBSTEPS = 5  # of the teacher, for each step of the student
# Trajectories made at a time; half of them are used in one training step.
DISTILL_MIX = [("t2i", "square", 352, .52), ("t2i", "wide", 448, .06), ("t2i", "tall", 448, .06), ("edit", "square", 208, .24),
               ("edit", "wide", 256, .03), ("edit", "tall", 256, .03), ("merge", "square", 144, .06)]


def knots(n_tokens):
    """The student's four noise levels, and the teacher's finer ones that pass through them."""
    coarse = schedule(STEPS, n_tokens)
    mu = math.log(coarse[2] / (1 - coarse[2]))  # at u = 1/2 the shifted level is e^mu / (e^mu + 1)
    return coarse, [shift(1 - i / (STEPS * SUBSTEPS), mu) for i in range(STEPS * SUBSTEPS)] + [0.0]


def train_student(pools, words, base, seconds, partial, guidance=4.0, lr_muon=1.0e-3, lr_adam=3e-4):
    """Learns to cross each of the four intervals in one step, as the guided teacher does in five.

    Trajectories start at noise or, half the time, at a state that the student itself has reached, so that
    it also learns to continue from its own errors. They are kept for a while and used several times.
    """
    text, teacher, student, follower = TextEncoder().cuda(), Flux2().cuda(), Flux2().cuda(), Flux2().cuda()
    text.load_state_dict(base["text"])
    for flux in (teacher, student):
        flux.load_state_dict(base["flux"])
    text.bfloat16()
    teacher.bfloat16()
    learner = Learner((student,), lr_muon, lr_adam, average=0.999)
    used, done, made = 0.0, 0, 0
    if partial.exists():
        state = torch.load(partial, map_location="cuda")
        learner.restore(state["learner"])
        used, done = state["used"], state["steps"]
    followed = learner.average.bfloat16()
    point_into((follower,), followed)
    empty = torch.from_numpy(words([""])).long().cuda()
    with torch.no_grad():
        empty = text(empty, real_tokens(empty, words.pad))
    levels = {name: tuple(torch.tensor(v, device="cuda") for v in knots(pool.grid[0] * pool.grid[1])) for name, pool in pools.items()}
    pool, crossings, lessons, store = torch.cuda.graph_pool_handle(), {}, {}, []

    def cross(where, x, sigmas, features, *refs):
        for i in range(SUBSTEPS):
            v = velocity(teacher, x, sigmas[i].expand(len(x)), features, where, *refs, guidance=guidance, empty=empty)
            x = x + (sigmas[i + 1] - sigmas[i]) * v
        return x

    def learn(where, x, target, now, features, *refs):
        loss = F.mse_loss(velocity(student, x, now, features, where, *refs), target)
        learner.descend(loss)
        return loss.detach()

    @torch.no_grad()
    def make_chunk():
        kind, bucket, n, _ = random.choices(DISTILL_MIX, [m[3] for m in DISTILL_MIX])[0]
        clean, refs, tokens, where = pools[bucket].batch(kind, n)
        refs = [] if refs is None else [refs.bfloat16()]
        first = random.choices(range(STEPS), (5, 1, 1.5, 2.5))[0]
        coarse, fine = levels[bucket]
        features = text(tokens, real_tokens(tokens, words.pad))
        x = torch.randn_like(clean)
        if first:
            followed.copy_(learner.average)
            for k in range(first):
                x = x + (coarse[k + 1] - coarse[k]) * velocity(follower, x, coarse[k].expand(n), features, where, *refs)
        states = [x]
        for k in range(first, STEPS):
            sigmas = fine[k * SUBSTEPS:(k + 1) * SUBSTEPS + 1]
            if (kind, bucket) not in crossings:
                crossings[kind, bucket] = Replay(pool, functools.partial(cross, where), x, sigmas, features, *refs)
            x = crossings[kind, bucket](x, sigmas, features, *refs).clone()
            states.append(x)
        share = torch.tensor((1.0, 1.2, 1.6, 2.6)[first:])  # how often each interval is practised
        return {"key": (kind, bucket), "first": first, "where": where, "states": torch.stack(states).half(), "features": features,
                "refs": refs, "share": (share.cumsum(0) / share.sum())[:-1].cuda()}

    clock, losses = Clock(seconds, used), torch.zeros(2, device="cuda")
    while clock.fraction() < 1:
        if made < 20 or made * 30 < done:
            store.append(make_chunk())
            made += 1
            if len(store) > 128:
                store.pop(0)
            torch.cuda.synchronize()
            continue
        c = random.choice(store)
        total, first, coarse = c["states"].shape[1], c["first"], levels[c["key"][1]][0]
        rows = torch.randperm(total, device="cuda")[:total // 2]
        k = first + torch.bucketize(torch.rand(len(rows), device="cuda"), c["share"])
        now, then = coarse[k], coarse[k + 1]
        x = c["states"][k - first, rows].float()
        target = (x - c["states"][k + 1 - first, rows].float()) / (now - then)[:, None, None]
        inputs = [x, target, now, c["features"][rows], *(r[rows] for r in c["refs"])]
        learner.factor.fill_(ramp(clock.fraction(), done, 100, 0.4))
        if c["key"] not in lessons:
            lessons[c["key"]] = Replay(pool, functools.partial(learn, c["where"]), *inputs)
        losses[0] += lessons[c["key"]](*inputs)
        losses[1] += 1
        done += 1
        if done % 10 == 0:
            stop_if_out_of_time(learner, clock, done, partial)
        if done % 500 == 0 or done == 20:
            say(f"student step {done} ({100 * clock.fraction():.0f}%) loss {(losses[0] / losses[1]).item():.4f}, {made} chunks")
            losses.zero_()
    learner.finish()
    say(f"student: {done} steps, {made} chunks of trajectories in {clock.spent():.0f} s")
    return {"flux": student.state_dict()}, {"steps": done, "chunks": made, "seconds": round(clock.spent())}
