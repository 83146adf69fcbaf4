"""The stages in order. A finished stage leaves a file in the work folder and is not repeated."""
import time

import torch

from data.families import BUCKETS, make_world
from data.pool import Pool
from learning.clock import T0, Clock, Stopped, say
from learning.replay import Replay
from learning.train_base import train_base
from learning.train_judge import train_judge
from learning.train_student import train_student
from learning.train_vae import train_vae
from networks.autoencoder import AutoEncoder
from results.export import export
from results.measure import evaluate
from results.recordings import record_goldens
from world.tokenizer import Words


def run_all(args):
    Replay.record = not args.plain
    Clock.stop_at = T0 + args.stop_after
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        run_stages(args)
    except Stopped:
        say("out of time; the same command continues")


def run_stages(args):
    work, out = args.work, args.out
    words, pools = make_pools(args)
    n_pictures = sum(len(p.rows) for p in pools.values())
    if not all(state_file(work, name).exists() for name in ("vae", "judge", "latents")):
        for pool in pools.values():
            pool.draw()
        torch.cuda.synchronize()
        say(f"drew {n_pictures} pictures")
    vae, vae_numbers = stage(work, "vae", lambda: train_vae(pools, args.vae_seconds, args.start))
    judge, judge_numbers = stage(work, "judge", lambda: train_judge(pools, args.judge_seconds))
    for name, latents in stage(work, "latents", lambda: encode_pools(pools, vae)).items():
        pools[name].latents, pools[name].pictures = latents, None
    say("latents ready")
    base, base_numbers = stage(work, "base", lambda: train_base(pools, words, args.base_seconds, work / "base.partial", args.start))
    student, student_numbers = stage(work, "student", lambda: train_student(pools, words, base, args.distill_seconds, work / "student.partial"))
    export(work, out, vae, base, student, {"pictures": n_pictures, "vae": vae_numbers, "judge": judge_numbers, "base": base_numbers,
                                           "distilled": student_numbers})
    say("== evaluate")
    pools.clear()
    scenes, prompts, edits = evaluate(out, judge, args.prompts, args.edits)
    record_goldens(out, scenes, prompts, edits)
    say("done")


def make_pools(args):
    """The tokenizer, and a pool for each picture size."""
    work = args.work
    if not (work / "world-tall.npz").exists():
        make_world(work, args.scale, args.workers, args.start)  # before CUDA starts: it forks
        say("== world made")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    return Words(work / "tokenizer.json"), {name: Pool(work, name) for name in BUCKETS}


def encode_pools(pools, vae_state):
    vae = AutoEncoder().cuda()
    vae.load_state_dict(vae_state)
    vae.bfloat16()
    for pool in pools.values():
        pool.encode(vae)
    return {name: pool.latents for name, pool in pools.items()}


def state_file(work, name):
    return work / f"{name}.pt"


def stage(work, name, make):
    """The result of a stage: from its file, else made now and kept there."""
    path = state_file(work, name)
    if path.exists():
        return torch.load(path, map_location="cuda")
    if time.time() > Clock.stop_at:
        raise Stopped
    say(f"== {name}")
    result = make()
    torch.save(result, work / "unfinished.pt")
    (work / "unfinished.pt").rename(path)
    return result
