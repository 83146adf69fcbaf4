"""How often an exported model draws what it was told, on scenes that training never showed."""
import json
import random

import torch

from data.families import BUCKETS
from files import write_json
from learning.clock import say
from networks.judge import Judge
from painter.draw import render
from results.model import Model
from results.sheet import save_sheet
from world.captions import caption
from world.edits import edit, merge
from world.scene import is_held_out, sample_scene, scene_labels

RUNS = [("base", 50, 4.0), ("base", 20, 4.0), ("distilled", 4, 1.0)]  # model, steps, guidance
FREE_PROMPTS = ["a red house", "a blue rocket at night", "a boat on the sea at sunset", "a pink heart", "a tree in the snow",
                "a yellow balloon over the mountains", "a big mushroom on a meadow", "A purple flower.", "a house and a tree", "three trees",
                "a castle", "a black ball on the beach under a blue sky"]


def held_out_scenes(rng, n):
    scenes = []
    while len(scenes) < n:
        scene = sample_scene(rng, rng.choices((1, 2, 3), (4, 3, 2))[0])
        if is_held_out(scene):
            scenes.append(scene)
    return scenes


def held_out_edits(rng, n, kind="edit"):
    """(name, instruction, before, second or None, after) with a result that was never shown in training."""
    edits = []
    while len(edits) < n:
        if kind == "merge":
            name, text, first, second, new = merge(rng)
        else:
            first, second = sample_scene(rng), None
            name, text, new = edit(first, rng)
        if is_held_out(new):
            edits.append((name, text, first, second, new))
    return edits


def labels_of(scenes, device="cuda"):
    return torch.tensor([scene_labels(s) for s in scenes], device=device)


def score(judge, pictures, labels, told_only):
    """Accuracy by attribute. told_only leaves out what the caption cannot say: no sun, no hills, medium size."""
    guess = torch.cat([judge.labels(p) for p in pictures.split(256)])
    right = guess == labels
    here, sizes = labels[:, 4::3] > 0, labels[:, 6::3]
    share = lambda ok, mask: round(100 * ok[mask].float().mean().item(), 1) if mask.any() else None
    every = torch.ones_like(labels[:, 0], dtype=torch.bool)
    lit = labels[:, 1] > 0 if told_only else every
    hilly = labels[:, 3] > 0 if told_only else every
    sized = here & (sizes != 2) if told_only else here
    things = (right[:, 4::3] & (right[:, 5::3] | ~here)).all(1)
    return {"kind": share(right[:, 4::3], here), "colour": share(right[:, 5::3], here), "size": share(right[:, 6::3], sized),
            "place": share(((guess[:, 4::3] > 0) == here).all(1), every), "sky": share(right[:, 0], every), "light": share(right[:, 1], lit),
            "ground": share(right[:, 2], every), "backdrop": share(right[:, 3], hilly),
            "whole picture": share(things & right[:, 0] & right[:, 2] & (right[:, 1] | ~lit) & (right[:, 3] | ~hilly), every)}


def judge_edits(judge, model, cases, steps, guidance):
    """References and pictures of held-out edits, their score, and for each whether the change was made."""
    before, after = labels_of([c[2] for c in cases]), labels_of([c[4] for c in cases])
    refs = [render([c[i] for c in cases]) for i in (2, 3) if cases[0][i] is not None]
    pictures = model.generate([c[1] for c in cases], refs=refs, steps=steps, guidance=guidance, seed=3)
    entry = score(judge, pictures, after, False)
    guess = torch.cat([judge.labels(p) for p in pictures.split(256)])
    right, changed = guess == after, before != after
    done = (right | ~changed).all(1)
    entry["changed as told"] = round(100 * done.float().mean().item(), 1)
    entry["rest kept"] = round(100 * right[~changed].float().mean().item(), 1)
    return refs, pictures, entry, done.tolist()


def by_kind_of_edit(cases, done):
    share = lambda kind: sum(d for d, c in zip(done, cases) if c[0] == kind) / sum(c[0] == kind for c in cases)
    return {kind: round(100 * share(kind), 1) for kind in sorted({c[0] for c in cases})}


def save_edits(path, cases, refs, pictures):
    sheet = [p for i in range(12) for p in [r[i] for r in refs] + [pictures[i]]]
    texts = [t for i in range(12) for t in [""] * len(refs) + [cases[i][1]]]
    save_sheet(path, sheet, texts, 6)


def save_samples(out, models, prompts, drawn, through):
    for name, steps, guidance in RUNS:
        pictures = models[name].generate(prompts[:24], steps=steps, guidance=guidance, seed=1)
        save_sheet(out / f"samples-{name}-{steps}.png", pictures, prompts[:24], 6)
    save_sheet(out / "samples-autoencoder.png", [p for i in range(9) for p in (drawn[i], through[i])], ["drawn", "decoded"] * 9, 6)
    save_sheet(out / "samples-free.png", models["distilled"].generate(FREE_PROMPTS, seed=5), FREE_PROMPTS, 6)


@torch.no_grad()
def evaluate(out, judge_state, n_prompts, n_edits):
    """Judges pictures for prompts and edits that training never saw; writes sheets of samples."""
    judge = Judge().cuda().eval()
    judge.load_state_dict(judge_state)
    rng, results = random.Random(12345), {}
    scenes = held_out_scenes(rng, n_prompts)
    prompts, labels = [caption(s, rng, certain=True) for s in scenes], labels_of(scenes)
    edits = {"edit": held_out_edits(rng, n_edits), "two references": held_out_edits(rng, n_edits // 3, "merge")}
    models = {name: Model(out, name, torch.bfloat16) for name in ("base", "distilled")}
    drawn = torch.cat([render(scenes[i:i + 256]) for i in range(0, len(scenes), 256)])
    vae = models["base"].vae
    through = torch.cat([vae.decode(vae.encode(p)).clamp(-1, 1) for p in drawn.split(128)])
    results["judge on drawn pictures"] = score(judge, drawn, labels, True)
    results["judge on pictures through the autoencoder"] = score(judge, through, labels, True)
    for name, steps, guidance in RUNS:
        model, run = models[name], f"{name}, {steps} steps"
        pictures = model.generate(prompts, steps=steps, guidance=guidance, seed=1)
        results[f"{run}, text to image"] = score(judge, pictures, labels, True)
        for h, w in (BUCKETS["wide"], BUCKETS["tall"]) if name == "distilled" else ():
            pictures = model.generate(prompts[:256], (h, w), steps=steps, guidance=guidance, seed=2)
            results[f"{run}, {w}x{h}"] = score(judge, pictures, labels[:256], True)
        for what, cases in edits.items():
            refs, pictures, results[f"{run}, {what}"], done = judge_edits(judge, model, cases, steps, guidance)
            if what == "edit" and name == "distilled":
                results["distilled, changed as told by kind of edit"] = by_kind_of_edit(cases, done)
            if steps != 50:
                save_edits(out / f"samples-{name}-{steps}-{what.replace(' ', '-')}.png", cases, refs, pictures)
    for key, value in results.items():
        say(key, json.dumps(value))
    save_samples(out, models, prompts, drawn, through)
    write_json(out / "results.json", results)
    return scenes, prompts, edits
