"""The networks and the sampler here against tensors recorded from the reference implementation."""
import json

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from learning.clock import say
from networks.autoencoder import AutoEncoder, pack
from networks.text_encoder import TextConfig, TextEncoder
from networks.transformer import Flux2, FluxConfig
from pixels import to_input
from sampler import denoise, positions, schedule


@torch.no_grad()
def check(folder):
    """Compares the networks and the sampler with tensors recorded from the reference implementation; returns whether they agree."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    load = lambda name: {k: v.float().cuda() for k, v in load_file(folder / f"{name}.safetensors").items()}
    c = json.loads((folder / "meta.json").read_text())["config"]
    q, f, worst = c["qwen"], c["flux"], 0.0

    def compare(name, mine, theirs):
        nonlocal worst
        error = ((mine - theirs).norm() / theirs.norm()).item()
        worst = max(worst, error)
        say(f"{name}: relative error {error:.2e}")

    config = TextConfig(q["vocab"], q["hidden"], q["layers"], q["heads"], q["kv"], q["head_dim"], q["ff"], tuple(q["out_layers"]))
    text = TextEncoder(config).cuda()
    text.load_state_dict(load("text_encoder"))
    g = load("text_encoder.golden")
    txt = text(g["input_ids"].long(), g["attention_mask"].sum(1))
    compare("text features", txt, g["prompt_embeds"])
    empty = g["negative_prompt_embeds"]
    flux = Flux2(FluxConfig(f["hidden"], f["heads"], f["double"], f["single"], f["ctx"])).cuda()
    flux.load_state_dict(load("flux2"))
    g = load("flux2.golden")
    compare("velocity", flux(g["latents"], txt, g["timestep"], torch.cat((g["txt_ids"], g["img_ids"]), 1)[0]), g["velocity"])
    vae = AutoEncoder(c["vae"]["channels"]).cuda()
    vae.load_state_dict(load("vae"), strict=False)
    g = load("vae.golden")
    compare("encode", vae.encode(g["image"]), g["encoded"])
    compare("decode", vae.decode(g["latents"]), g["decoded"])
    pixels = torch.from_numpy(np.asarray(Image.open(folder / "ref_0.png").convert("RGB")).copy()).permute(2, 0, 1)[None]
    seen = vae.encode(to_input(pixels).cuda())
    grid = (c["height"] // 16, c["width"] // 16)
    for name, steps, guidance, refs in (("klein_t2i", 4, 1.0, 0), ("base_cfg", c.get("base_steps", 6), 4.0, 0), ("klein_edit1", 4, 1.0, 1)):
        g = load(f"pipeline_{name}.golden")
        where = positions(*grid, n_text=txt.shape[1], ref_sizes=[tuple(seen.shape[2:])] * refs)
        x = denoise(flux, pack(g["noise"]), txt, where, schedule(steps, grid[0] * grid[1]), pack(seen) if refs else None, guidance, empty)
        compare(name, x, g[f"latents_{steps - 1}"])
    say("all agree" if worst < 1e-3 else "DIFFERENT")
    return worst < 1e-3
