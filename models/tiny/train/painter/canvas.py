"""What painters paint on: many pictures at once."""
import torch

from painter.palette import INK, solid
from painter.shapes import ellipse


class Canvas:
    """Pictures [n, 3, h, w] in painting order."""

    def __init__(self, rgb):
        self.rgb = rgb

    def paint(self, alpha, colour):
        """alpha [n, h, w] (or broadcastable) of colour, a triple or [n, 3, ...]."""
        if isinstance(colour, tuple):
            colour = solid(colour, self.rgb.device)
        self.rgb = torch.lerp(self.rgb, colour, alpha[:, None])


class Brush:
    """A canvas seen from one thing: x to the right, y upwards, in units of the thing's size."""

    def __init__(self, canvas, x, y, px, colours, side, night, sea):
        self.canvas, self.x, self.y, self.px = canvas, x, y, px
        self.side, self.night, self.sea = side, night, sea  # side is 1 where the light comes from the right
        for name, value in colours.items():
            setattr(self, name, value)

    def cover(self, d, grow=0.0):
        return (0.5 + grow - d / self.px).clamp(0, 1)

    def fill(self, d, colour, edge=None, width=1.5):
        if edge is not None:
            self.canvas.paint(self.cover(d, width), edge)
        self.canvas.paint(self.cover(d), colour)

    def shade(self, d, dark=0.22, glow=0.22):
        """Light from above and from the side of sun or moon, over the part with distance d."""
        slope = self.side * self.x * 0.9 + (self.y - 0.35) * 0.7
        cover = self.cover(d)
        self.canvas.paint(cover * (slope * glow * 1.6).clamp(0, glow), (1.0, 1.0, .96))
        self.canvas.paint(cover * (-slope * dark * 1.6).clamp(0, dark), INK)

    def gloss(self, cx, cy, r, strength=0.55):
        d2 = (self.x - cx * self.side) ** 2 + (self.y - cy) ** 2
        self.canvas.paint((-d2 / (r * r)).exp() * strength, (1.0, 1.0, 1.0))

    def stand(self, rx, island=True):
        """What is under a thing: a soft shadow, or a small island or foam at sea."""
        x, y, sea = self.x, self.y, self.sea
        shadow = (1.1 - ((x + .10 * self.side) / (rx * 1.15)) ** 2 - (y / (rx * .26)) ** 2).clamp(0, 1) * 0.34
        if island:
            self.canvas.paint(self.cover(ellipse(x, y, 0, -.03, rx * 1.5, rx * .36)) * sea * 0.55, (.93, .97, 1.0))
            sand = self.cover(ellipse(x, y, 0, -.01, rx * 1.36, rx * .27)) * sea
            self.canvas.paint(sand, (.93, .82, .58))
            self.canvas.paint(sand * (-y * 6).clamp(0, .35), (.62, .46, .26))
        else:
            self.canvas.paint(self.cover(ellipse(x, y, 0, 0, rx * 1.25, rx * .22)) * sea * 0.5, (.93, .97, 1.0))
            shadow = shadow * (1 - sea)
        self.canvas.paint(shadow, INK)
