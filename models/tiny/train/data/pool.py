"""Pictures, captions and edits of one size, all on the GPU."""
import numpy as np
import torch

from data.families import BUCKETS, CAPTIONS
from networks.autoencoder import pack
from painter.draw import draw
from pixels import to_input
from sampler import positions


class Pool:
    """One picture size: scenes, words, and either the pictures or their latents."""

    def __init__(self, work, name, device="cuda"):
        self.name, (self.h, self.w) = name, BUCKETS[name]
        self.grid = (self.h // 16, self.w // 16)
        with np.load(work / f"world-{name}.npz") as data:
            for key in data.files:
                setattr(self, key, torch.from_numpy(data[key]).to(device))
        self.pictures = self.latents = None
        self.where = {n: positions(*self.grid, n, device=device) for n in range(3)}

    @torch.no_grad()
    def draw(self, chunk=3072):
        self.pictures = torch.empty((len(self.rows), 3, self.h, self.w), dtype=torch.uint8, device=self.rows.device)
        for i in range(0, len(self.rows), chunk):
            self.pictures[i:i + chunk] = (draw(self.rows[i:i + chunk], self.h, self.w) * 255 + .5).to(torch.uint8)

    @torch.no_grad()
    def encode(self, vae, chunk=256):
        parts = []
        for i in range(0, len(self.rows), chunk):
            parts.append(pack(vae.encode(to_input(self.pictures[i:i + chunk]))).to(torch.bfloat16))
        self.latents = torch.cat(parts)

    def batch(self, kind, n):
        """Random examples: (latents, references or None, tokens, positions)."""
        device = self.latents.device
        if kind == "t2i":
            i = torch.randint(len(self.latents), (n,), device=device)
            tokens = self.captions[i, torch.randint(CAPTIONS, (n,), device=device)]
            return self.latents[i].float(), None, tokens.long(), self.where[0]
        links, orders = getattr(self, kind + "_links"), getattr(self, kind + "_orders")
        j = torch.randint(len(links), (n,), device=device)
        before, after, second = links[j].long().unbind(1)
        refs = [before] if kind == "edit" else [before, second]
        return self.latents[after].float(), torch.cat([self.latents[r] for r in refs], 1).float(), orders[j].long(), self.where[len(refs)]
