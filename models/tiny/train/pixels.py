"""Pictures between 8-bit values and the networks' -1..1."""
from PIL import Image


def to_input(pictures):
    """0..255 -> -1..1."""
    return pictures.float() / 127.5 - 1


def quantised(pictures):
    """-1..1 -> -1..1, as if they had been saved as a PNG."""
    return (pictures * 127.5 + 127.5).round().clamp(0, 255) / 127.5 - 1


def to_image(picture):
    return Image.fromarray((picture * 127.5 + 127.5).round().clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy())
