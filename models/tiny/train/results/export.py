"""The trained model as files."""
import torch
from safetensors.torch import save_file

from data.families import BUCKETS
from files import FILES, write_json
from networks.autoencoder import VAE_CHANNELS
from networks.layers import LATENT_CHANNELS
from networks.text_encoder import TextConfig
from networks.transformer import FluxConfig
from sampler import STEPS
from world.scene import BACKDROPS, COLOURS, GROUNDS, KINDS, LIGHTS, PLACES, SIZES, SKIES
from world.tokenizer import CHAT_TEMPLATE, END, PAD, START, TEXT_LENGTH, THINK, THOUGHT, Words, chat


def export(work, out, vae, base, student, numbers):
    def save(name, state):
        tensors = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in state.items() if v.is_floating_point()}
        save_file(tensors, out / FILES[name], metadata={"format": "pt"})

    save("distilled", student["flux"])
    save("base", base["flux"])
    save("text", base["text"])
    save("vae", vae)
    (out / "tokenizer.json").write_bytes((work / "tokenizer.json").read_bytes())
    words, t, f = Words(work / "tokenizer.json"), TextConfig(), FluxConfig()
    added = {str(words.tokenizer.token_to_id(k)): {"content": k, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                                   "special": k not in (THINK, THOUGHT)} for k in (PAD, START, END, THINK, THOUGHT)}
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added,
        "bos_token": None, "eos_token": END, "pad_token": PAD, "unk_token": None, "model_max_length": TEXT_LENGTH,
        "clean_up_tokenization_spaces": False, "errors": "replace", "split_special_tokens": False, "chat_template": CHAT_TEMPLATE})
    write_json(out / "text_encoder.config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": t.vocabulary, "hidden_size": t.hidden,
        "intermediate_size": t.ff, "num_hidden_layers": t.layers, "num_attention_heads": t.heads, "num_key_value_heads": t.kv_heads,
        "head_dim": t.head_dim, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960,
        "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
        "eos_token_id": words.tokenizer.token_to_id(END), "pad_token_id": words.pad, "torch_dtype": "bfloat16",
        "flux2": {"layers": list(t.taps), "text_length": TEXT_LENGTH}})
    write_json(out / "meta.json", {
        "name": "flux2-tiny", "files": FILES, "text_length": TEXT_LENGTH, "text_layers": list(t.taps), "chat_template": chat("{prompt}"),
        "pad_token_id": words.pad, "transformer": {
            "hidden": f.hidden, "heads": f.heads, "head_dim": f.hidden // f.heads, "axes_dim": [f.hidden // f.heads // 4] * 4, "theta": 2000,
            "double_blocks": f.double, "single_blocks": f.single, "mlp_ratio": 3, "in_channels": 4 * LATENT_CHANNELS, "context": f.context,
            "guidance_embedding": False},
        "vae": {"channels": list(VAE_CHANNELS), "latent_channels": LATENT_CHANNELS, "groups": 32, "batch_norm_eps": 1e-4},
        "defaults": {"width": 256, "height": 256, "distilled": {"steps": STEPS, "guidance": 1.0}, "base": {"steps": 50, "guidance": 4.0}},
        "trained_sizes": [[w, h] for h, w in BUCKETS.values()], "reference_time_step": 10,
        "world": {"skies": SKIES, "lights": LIGHTS, "grounds": GROUNDS, "backdrops": BACKDROPS, "kinds": KINDS, "colours": COLOURS,
                  "places": PLACES, "sizes": SIZES},
        "training": numbers})
