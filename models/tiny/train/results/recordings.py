"""Prompts and whole runs for the tests of a runtime."""
import json

import torch
from safetensors.torch import save_file

from files import FILES, write_json
from networks.autoencoder import pack
from painter.draw import render
from pixels import quantised, to_image
from results.model import Model
from sampler import STEPS, denoise, positions, schedule


@torch.no_grad()
def record_goldens(out, scenes, prompts, edits):
    """Prompts for tests, and whole runs in float32 to compare a runtime with."""
    describe = lambda s: {"sky": s.sky, "light": s.light, "ground": s.ground, "backdrop": s.backdrop,
                          "things": {p: {"kind": t.kind, "colour": t.colour, "size": t.size} for p, t in s.things.items()}}
    write_json(out / "prompts.json", [{"prompt": p, **describe(s)} for s, p in zip(scenes[:60], prompts)])
    cases = edits["edit"][:8]
    for i, c in enumerate(cases):
        to_image(render([c[2]])[0]).save(out / f"reference-{i}.png")
    write_json(out / "edits.json", [{"reference": f"reference-{i}.png", "edit": c[0], "prompt": c[1], "before": describe(c[2]),
                                     "after": describe(c[4])} for i, c in enumerate(cases)])
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    runs = [("t2i", "distilled", prompts[0], (256, 256), []), ("t2i-wide", "distilled", prompts[1], (192, 256), []),
            ("edit", "distilled", cases[0][1], (256, 256), [0]), ("base", "base", prompts[2], (256, 256), [])]
    for name, which, prompt, (h, w), refs in runs:
        m = Model(out, which)
        grid, steps = (h // 16, w // 16), STEPS if which == "distilled" else 8
        tokens, txt, empty = m.tokens([prompt]), m.features([prompt]), m.features([""])
        seen = [pack(m.vae.encode(quantised(render([cases[r][2]])))) for r in refs]
        start = torch.randn((1, grid[0] * grid[1], 128), generator=torch.Generator().manual_seed(7)).cuda()
        sigmas = schedule(steps, start.shape[1])
        last, states = denoise(m.flux, start, txt, positions(*grid, len(refs)), sigmas, torch.cat(seen, 1) if seen else None,
                               m.guidance, empty, keep=range(1, steps + 1))
        record = {"noise": start, "token_ids": tokens.int(), "prompt_embeds": txt, "sigmas": torch.tensor(sigmas),
                  "image": m.picture(last, grid) / 2 + 0.5}
        record |= {f"latents_{i}": s for i, s in enumerate(states)} | {f"reference_latents_{i}": s for i, s in enumerate(seen)}
        if m.guidance != 1.0:
            record["negative_prompt_embeds"] = empty
        note = {"prompt": prompt, "model": FILES[which], "width": w, "height": h, "steps": steps, "guidance": m.guidance,
                "references": [f"reference-{r}.png" for r in refs]}
        save_file({k: v.cpu().contiguous() for k, v in record.items()}, out / f"golden-{name}.safetensors",
                  metadata={k: json.dumps(v) for k, v in note.items()})
