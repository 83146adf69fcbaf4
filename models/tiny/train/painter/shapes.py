"""Signed distances to shapes: negative inside, in the units of x and y, which are grids of points."""
import math

import torch


def circle(x, y, cx, cy, r):
    return ((x - cx) ** 2 + (y - cy) ** 2).sqrt() - r


def ellipse(x, y, cx, cy, rx, ry):
    """Close to a distance near the edge, which is all that is needed."""
    return ((((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2).sqrt() - 1) * min(rx, ry)


def box(x, y, cx, cy, hx, hy, r=0.0):
    dx, dy = (x - cx).abs() - (hx - r), (y - cy).abs() - (hy - r)
    outside = (dx.clamp(min=0) ** 2 + dy.clamp(min=0) ** 2).sqrt()
    return outside + torch.maximum(dx, dy).clamp(max=0) - r


def polygon(x, y, *corners):
    """Convex, corners counter-clockwise with y upwards."""
    d = None
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1]):
        length = math.hypot(bx - ax, by - ay)
        e = ((x - ax) * (by - ay) - (y - ay) * (bx - ax)) / length
        d = e if d is None else torch.maximum(d, e)
    return d


def segment(x, y, ax, ay, bx, by, r):
    px, py, dx, dy = x - ax, y - ay, bx - ax, by - ay
    h = ((px * dx + py * dy) / (dx * dx + dy * dy)).clamp(0, 1)
    return ((px - dx * h) ** 2 + (py - dy * h) ** 2).sqrt() - r


def star_shape(x, y, r, inner):
    kx, ky = math.cos(math.pi / 5), -math.sin(math.pi / 5)
    x = x.abs()
    m = 2 * (kx * x + ky * y).clamp(min=0)
    x, y = x - m * kx, y - m * ky
    m = 2 * (-kx * x + ky * y).clamp(min=0)
    x, y = (x + m * kx).abs(), y - m * ky - r
    bx, by = -inner * ky, inner * kx - 1
    h = ((x * bx + y * by) / (bx * bx + by * by)).clamp(0, r)
    return ((x - bx * h) ** 2 + (y - by * h) ** 2).sqrt() * (y * bx - x * by).sign()


def heart_shape(x, y):
    """About 1.2 wide, from y = 0 (tip) to y = 1.1."""
    x = x.abs()
    lobe = ((x - .25) ** 2 + (y - .75) ** 2).sqrt() - math.sqrt(2) / 4
    m = 0.5 * (x + y).clamp(min=0)
    side = torch.minimum(x ** 2 + (y - 1) ** 2, (x - m) ** 2 + (y - m) ** 2).sqrt() * (x - y).sign()
    return torch.where(x + y > 1, lobe, side)
