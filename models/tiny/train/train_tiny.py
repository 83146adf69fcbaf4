"""Train a tiny FLUX.2 on pictures that this program draws itself.

The result has the architecture of FLUX.2 klein (Qwen3 text encoder, double and single stream
transformer, 8x autoencoder with 32 channels) at about a five-hundredth of its size, so that a
runtime for the real model can be tried end to end with a model that really draws.

    train_tiny.py all --work DIR --out DIR      every stage in order, resuming where it stopped
    train_tiny.py check --goldens DIR           compare the networks here with recorded tensors

Stages: the world (scenes, captions, tokenizer), pictures, the autoencoder, a judge (a classifier
that scores generated pictures), latents, the base model (rectified flow, guidance, any number of
steps), the distilled model (four steps, no guidance), export, measurement.
Needs PyTorch with a GPU, numpy, tokenizers, safetensors and Pillow.
"""
import argparse
import math
import os
import sys
from pathlib import Path

from results.check import check
from stages import run_all


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["all", "check"])
    parser.add_argument("--work", type=Path, default=Path("work"), help="states of the stages; a finished stage is not repeated")
    parser.add_argument("--out", type=Path, default=Path("out"), help="exported model")
    parser.add_argument("--start", type=Path, help="an exported model to go on from, instead of starting anew")
    parser.add_argument("--goldens", type=Path, help="folder with recorded tensors, for check")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the training set")
    parser.add_argument("--vae-seconds", type=float, default=330)
    parser.add_argument("--judge-seconds", type=float, default=12)
    parser.add_argument("--base-seconds", type=float, default=720)
    parser.add_argument("--distill-seconds", type=float, default=300)
    parser.add_argument("--prompts", type=int, default=1024, help="held-out prompts to judge")
    parser.add_argument("--edits", type=int, default=768, help="held-out edits to judge; a third as many with two references")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--plain", action="store_true", help="no CUDA graphs")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds until this process saves its state and ends")
    args = parser.parse_args()
    if args.command == "check" and not args.goldens:
        parser.error("check needs --goldens DIR")
    return args


def main():
    args = parse_arguments()
    if args.command == "check":
        sys.exit(0 if check(args.goldens) else 1)
    run_all(args)


if __name__ == "__main__":
    main()
