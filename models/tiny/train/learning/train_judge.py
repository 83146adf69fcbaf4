"""The judge's training."""
import random

import torch
import torch.nn.functional as F

from data.families import BUCKETS
from learning.clock import Clock, ramp, say
from networks.judge import Judge
from pixels import to_input


def train_judge(pools, seconds):
    """Sees drawn pictures, some with noise, some blurred."""
    judge = Judge().cuda()
    adam = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=1e-2, fused=True)
    clock, steps = Clock(seconds), 0
    while clock.fraction() < 1:
        pool = pools[random.choices(list(BUCKETS), (6, 1, 1))[0]]
        i = torch.randint(len(pool.rows), (256,), device="cuda")
        x = to_input(pool.pictures[i])
        if steps % 2:
            x = x + 0.06 * torch.rand(len(x), 1, 1, 1, device="cuda") * torch.randn_like(x)
        elif steps % 4 == 0:
            x = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2.0, mode="bilinear")
        with torch.autocast("cuda", torch.bfloat16):
            heads = judge(x)
        loss = sum(F.cross_entropy(head, label.long()) for head, label in zip(heads, pool.labels[i].unbind(1)))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.param_groups[0]["lr"] = 2e-3 * ramp(clock.fraction(), steps, 100, 0.3)
        adam.step()
        steps += 1
        if steps % 500 == 0:
            say(f"judge step {steps} loss {loss.item():.4f}")
    return judge.state_dict(), {"steps": steps}
