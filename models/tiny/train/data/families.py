"""Scenes in families (before, after, perhaps a second picture) with all their words, made once and kept in files."""
import multiprocessing
import os
import random

import numpy as np

from world.captions import caption
from world.edits import edit, merge
from world.scene import is_held_out, sample_scene, scene_labels, scene_row
from world.tokenizer import TEXT_LENGTH, Words, train_tokenizer

BUCKETS = {"square": (256, 256), "wide": (192, 256), "tall": (256, 192)}  # height, width
CAPTIONS = 3  # wordings per picture
FAMILIES = {("square", "edit"): 34000, ("square", "merge"): 6000, ("wide", "edit"): 5000, ("tall", "edit"): 5000}


def make_families(job):
    """Runs in worker processes: n families and their words as arrays."""
    seed, n, kind, tokenizer = job
    rng, words = random.Random(seed), Words(tokenizer)
    scenes, links, orders = [], [], []
    while len(links) < n:
        if kind == "merge":
            _, text, first, second, new = merge(rng)
            family = [first, new, second]
        else:
            first = sample_scene(rng)
            _, text, new = edit(first, rng)
            family = [first, new]
        if any(is_held_out(s) for s in family):
            continue
        links.append([len(scenes), len(scenes) + 1, len(scenes) + 2 if kind == "merge" else -1])
        scenes += family
        orders.append(text)
    captions = words([caption(s, rng) for s in scenes for _ in range(CAPTIONS)]).reshape(len(scenes), CAPTIONS, TEXT_LENGTH)
    return {"rows": np.array([scene_row(s) for s in scenes], np.float32), "labels": np.array([scene_labels(s) for s in scenes], np.uint8),
            "captions": captions, "links": np.array(links, np.int32), "orders": words(orders)}


def make_world(work, scale, workers, start, seed=1):
    """Tokenizer and all families, as arrays in files."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    make_tokenizer(work, start, seed)
    chunk, jobs = 500, []
    for key, count in FAMILIES.items():
        for _ in range(max(1, round(count * scale / chunk))):
            jobs.append((key, (seed + 7919 * len(jobs), chunk, key[1], work / "tokenizer.json")))
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        parts = pool.map(make_families, [job for _, job in jobs], chunksize=1)
    for name in BUCKETS:
        chosen = [(kind, part) for ((bucket, kind), _), part in zip(jobs, parts) if bucket == name]
        np.savez(work / f"world-{name}.npz", **join_families(chosen))


def make_tokenizer(work, start, seed):
    """The exported model's, if there is one to start from; else a new one from words of the world."""
    if start:
        (work / "tokenizer.json").write_bytes((start / "tokenizer.json").read_bytes())
        return
    rng, texts = random.Random(seed), []
    for _ in range(20000):
        scene = sample_scene(rng)
        texts += [caption(scene, rng), edit(scene, rng)[1]]
    train_tokenizer(texts + [merge(rng)[1] for _ in range(4000)], work / "tokenizer.json")


def join_families(parts):
    """Parts (kind, arrays) of one picture size in one; links count through all of them."""
    out, offset = {k: [] for k in ("rows", "labels", "captions", "edit_links", "edit_orders", "merge_links", "merge_orders")}, 0
    for kind, part in parts:
        links = part["links"] + offset * (part["links"] >= 0)
        offset += len(part["rows"])
        for k in ("rows", "labels", "captions"):
            out[k].append(part[k])
        out[kind + "_links"].append(links)
        out[kind + "_orders"].append(part["orders"])
    return {k: np.concatenate(v) for k, v in out.items() if v}
