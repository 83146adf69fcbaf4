"""An exported model, from prompt to picture."""
import torch
from safetensors.torch import load_file

from files import FILES
from networks.autoencoder import AutoEncoder, pack, unpack
from networks.layers import LATENT_CHANNELS
from networks.text_encoder import TextEncoder, real_tokens
from networks.transformer import Flux2
from sampler import STEPS, denoise, positions, schedule
from world.tokenizer import Words


class Model:
    """The exported files, loaded back."""

    def __init__(self, out, which, dtype=torch.float32, device="cuda"):
        load = lambda name: load_file(out / FILES[name])
        self.words, self.device = Words(out / "tokenizer.json"), device
        self.text, self.flux, self.vae = TextEncoder().to(device), Flux2().to(device), AutoEncoder().to(device)
        self.text.load_state_dict(load("text"))
        self.flux.load_state_dict(load(which))
        self.vae.load_state_dict(load("vae"), strict=False)  # only bn.num_batches_tracked is missing
        for m in (self.text, self.flux, self.vae):
            m.to(dtype)
        self.steps, self.guidance = (STEPS, 1.0) if which == "distilled" else (50, 4.0)

    def tokens(self, prompts):
        return torch.from_numpy(self.words(prompts)).long().to(self.device)

    @torch.no_grad()
    def features(self, prompts):
        tokens = self.tokens(prompts)
        return self.text(tokens, real_tokens(tokens, self.words.pad))

    @torch.no_grad()
    def picture(self, latent, grid):
        return self.vae.decode(unpack(latent, *grid)).clamp(-1, 1)

    @torch.no_grad()
    def generate(self, prompts, size=(256, 256), refs=(), steps=None, guidance=None, seed=0, chunk=256):
        """Pictures [n, 3, h, w] in -1..1; refs: tensors of pictures, one for each prompt."""
        grid, steps, guidance = (size[0] // 16, size[1] // 16), steps or self.steps, guidance or self.guidance
        generator, out = torch.Generator(self.device).manual_seed(seed), []
        where = positions(*grid, len(refs), device=self.device)
        for i in range(0, len(prompts), chunk):
            txt, empty = self.features(prompts[i:i + chunk]), self.features([""])
            seen = torch.cat([pack(self.vae.encode(r[i:i + chunk])) for r in refs], 1) if refs else None
            x = torch.randn((len(txt), grid[0] * grid[1], 4 * LATENT_CHANNELS), generator=generator, device=self.device)
            x = denoise(self.flux, x, txt, where, schedule(steps, x.shape[1]), seen, guidance, empty)
            out.append(self.picture(x, grid))
        return torch.cat(out)
