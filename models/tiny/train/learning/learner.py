"""The optimizer: Muon and Adam on flat tensors."""
import math

import torch
import torch.nn.functional as F

from learning.clock import Stopped


def is_inner(name, p):
    """A matrix inside a block; embeddings, modulations, first and last layers are not."""
    return p.ndim == 2 and ("_blocks." in name or ".layers." in name)


def ordered(models):
    """Named parameters, inner matrices first, equal shapes together."""
    named = [item for m in models for item in m.named_parameters()]
    return sorted(named, key=lambda item: (not is_inner(*item), tuple(item[1].shape)))


def flat(tensors):
    """All in one, each padded to a multiple of 64 numbers."""
    return torch.cat([F.pad(t.flatten(), (0, -t.numel() % 64)) if t.numel() % 64 else t.flatten() for t in tensors])


def point_into(models, store):
    """Makes the models' parameters views of a flat tensor."""
    offset = 0
    for _, p in ordered(models):
        p.data = store[offset:offset + p.numel()].view(p.shape)
        offset += p.numel() + -p.numel() % 64


def orthogonalise(g):
    """The nearest matrices with all singular values near one, by five Newton-Schulz steps. g [k, m, n]."""
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.mT if tall else x).float()


class Learner:
    """Trains models in bfloat16 with float32 master weights, all in flat tensors.

    Inner matrices learn by Muon (momentum, made orthogonal), everything else by Adam; a running average of the weights is
    kept. Nothing here waits for the host, so that a whole training step can be recorded.
    """

    def __init__(self, models, lr_muon, lr_adam, average, beta2=0.95):
        named = ordered(models)
        self.params = [p for _, p in named]
        self.master = flat([p.detach().float() for p in self.params])
        self.average, self.live = self.master.clone(), self.master.bfloat16()
        point_into(models, self.live)
        self.groups, self.n_inner = [], 0  # offset and [count, rows, columns] of equal inner matrices
        for name, p in named:
            if is_inner(name, p):
                if self.groups and self.groups[-1][1][1:] == list(p.shape):
                    self.groups[-1][1][0] += 1
                else:
                    self.groups.append((self.n_inner, [1, *p.shape]))
                self.n_inner += p.numel()
        self.first, self.second = torch.zeros_like(self.master), torch.zeros_like(self.master[self.n_inner:])
        self.count, self.factor = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
        self.lr_muon, self.lr_adam, self.decay, self.beta2 = lr_muon, lr_adam, average, beta2

    def descend(self, loss):
        self.update(torch.autograd.grad(loss, self.params))

    @torch.no_grad()
    def update(self, grads):
        g, k = flat(grads).float(), self.n_inner
        g = g * (1 / (g.norm() + 1e-6)).clamp(max=1)
        self.count += 1
        change = torch.empty_like(g)
        if k:
            self.first[:k].lerp_(g[:k], 0.05)
            push = g[:k].lerp(self.first[:k], 0.95)
            for offset, (count, rows, columns) in self.groups:
                part = slice(offset, offset + count * rows * columns)
                size = self.lr_muon * 0.2 * math.sqrt(max(rows, columns))  # steps as large as Adam's
                change[part] = size * orthogonalise(push[part].view(count, rows, columns)).flatten()
            change[:k] += self.lr_muon * 0.01 * self.master[:k]
        self.first[k:].lerp_(g[k:], 0.1)
        self.second.lerp_(g[k:] * g[k:], 1 - self.beta2)
        first = self.first[k:] / (1 - torch.exp(self.count * math.log(0.9)))
        second = self.second / (1 - torch.exp(self.count * math.log(self.beta2)))
        change[k:] = self.lr_adam * first / (second.sqrt() + 1e-8)
        self.master.sub_(self.factor * change)
        self.live.copy_(self.master)
        self.average.lerp_(self.master, 1 - ((self.count + 1) / (self.count + 20)).clamp(max=self.decay))

    def finish(self):
        """The models get the averaged weights."""
        self.live.copy_(self.average)

    def state(self):
        return {k: getattr(self, k) for k in ("master", "average", "first", "second", "count")}

    def restore(self, state):
        for k, v in state.items():
            getattr(self, k).copy_(v)
        self.live.copy_(self.master)


def stop_if_out_of_time(learner, clock, steps, partial):
    """Saves the state of a stage in the file `partial` and ends the process's work, once its time is over."""
    torch.cuda.synchronize()
    if clock.out_of_time():
        torch.save({"learner": learner.state(), "used": clock.spent(), "steps": steps}, partial)
        raise Stopped
