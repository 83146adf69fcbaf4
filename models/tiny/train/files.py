"""Names of the exported weight files, and how JSON is written beside them."""
import json

FILES = {"distilled": "flux2-tiny.safetensors", "base": "flux2-tiny-base.safetensors", "text": "text_encoder.safetensors",
         "vae": "vae.safetensors"}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")
