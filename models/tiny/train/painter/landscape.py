"""Everything behind the things: sky, stars, sun or moon, clouds, mountains or hills, ground.

Positions are pixels, y downwards; `unit` keeps details at their size in relation to the picture. Whether a scene has
something is a factor of 0 or 1, so that one pass paints all scenes of a batch.
"""
import torch

from painter.canvas import Canvas
from painter.palette import palette, solid
from world.scene import BACKDROPS, GROUNDS, SKIES


def noise(seed, k):
    """A repeatable number in [0, 1) from a scene's seed."""
    return ((seed * 78.233 + k * 12.9898 + 0.317).sin() * 4375.5453).frac().abs()


def cell_noise(column, row, seed, a, b, c, factor):
    """The same for each cell of a grid."""
    return ((column * a + row * b + seed * c).sin() * factor).frac().abs()


def flags(index, n):
    """[n] times 1 or 0: which of n values each scene has."""
    return [(index == i).float().view(-1, 1, 1) for i in range(n)]


def pick(table, index):
    return table[index].view(-1, 3, 1, 1)


class View:
    """A batch of scenes as the painters of the landscape need them."""

    def __init__(self, rows, h, w):
        self.h, self.w, self.device = h, w, rows.device
        self.palette = palette(rows.device)
        self.sky, light, self.ground, backdrop = (rows[:, i].long() for i in range(4))
        self.seed = rows[:, 4].view(-1, 1, 1)
        self.light_x, self.light_y, self.horizon = (rows[:, i].view(-1, 1, 1) * size for i, size in ((5, w), (6, h), (7, h)))
        self.day, self.sunset, self.night, self.cloudy = flags(self.sky, len(SKIES))
        _, self.sun, self.moon = flags(light, 3)
        self.grass, self.sand, self.snow, self.sea = flags(self.ground, len(GROUNDS))
        _, self.hills, self.mountains = flags(backdrop, len(BACKDROPS))
        self.y = (torch.arange(h, device=rows.device).float() + .5).view(1, h, 1)
        self.x = (torch.arange(w, device=rows.device).float() + .5).view(1, 1, w)
        self.up = self.horizon - self.y  # height above the horizon
        self.unit = min(w, h) / 256
        self.tint = pick(self.palette.on_ground, self.sky)
        self.haze = self.palette.sky[self.sky][:, 2].reshape(-1, 3, 1, 1)

    def plain(self, *rgb):
        return solid(rgb, self.device)


def paint_landscape(rows, h, w):
    view = View(rows, h, w)
    canvas = paint_sky(view)
    paint_stars(canvas, view)
    paint_sun_and_moon(canvas, view)
    paint_clouds(canvas, view)
    paint_mountains(canvas, view)
    paint_hills(canvas, view)
    paint_ground(canvas, view)
    return canvas


def paint_sky(v):
    """Three colours from top to horizon."""
    t = (v.y / v.horizon).clamp(0, 1)
    top, middle, low = (v.palette.sky[v.sky][:, i].reshape(-1, 3, 1, 1) for i in range(3))
    rgb = torch.lerp(torch.lerp(top, middle, (2 * t).clamp(0, 1)[:, None]), low, (2 * t - 1).clamp(0, 1)[:, None])
    return Canvas(rgb.expand(-1, -1, -1, v.w).clone())


def paint_stars(canvas, v):
    """At most one to a cell."""
    cell = 30 * v.unit
    column, row = (v.x / cell).floor(), (v.y / cell).floor()
    r1 = cell_noise(column, row, v.seed, 12.9898, 78.233, 37.7, 4375.85)
    r2 = cell_noise(column, row, v.seed, 39.346, 11.135, 91.3, 2751.13)
    x, y = v.x - (column + .2 + .6 * r1) * cell, v.y - (row + .2 + .6 * r2) * cell
    size = (.8 + 1.3 * ((r1 + r2) * 7.31).frac()) * v.unit
    star = (-(x ** 2 + y ** 2) / (size * size)).exp() * (r1 < .62).float() * v.night
    canvas.paint(star * .95, (1.0, .98, .88))


def paint_sun_and_moon(canvas, v):
    x, y = v.x - v.light_x, v.y - v.light_y
    d = (x ** 2 + y ** 2).sqrt()
    r = (19 + 4 * v.sunset) * v.unit
    warm = (-(d / (3.2 * r)) ** 2).exp() * (.55 + .25 * v.sunset)
    canvas.paint(warm * v.sun, (1.0, .88, .55))
    disc = (0.5 + r - d).clamp(0, 1)
    canvas.paint(disc * v.sun * (1 - v.sunset), (1.0, .93, .48))
    canvas.paint(disc * v.sun * v.sunset, (1.0, .62, .28))
    canvas.paint((-(d / (2.6 * r)) ** 2).exp() * .28 * v.moon, (.80, .86, 1.0))
    bite = (((x - .48 * r) ** 2 + (y + .22 * r) ** 2).sqrt() - .86 * r).clamp(-.5, .5) + .5
    crescent = (noise(v.seed, 3.0) < .5).float()
    canvas.paint((0.5 + r * .95 - d).clamp(0, 1) * (1 - crescent * (1 - bite)) * v.moon, (.97, .95, .84))
    for cx, cy, cr in ((-.3, -.2, .22), (.3, .25, .26), (-.1, .45, .15)):
        crater = (0.5 + cr * r - ((x - cx * r) ** 2 + (y - cy * r) ** 2).sqrt()).clamp(0, 1)
        canvas.paint(crater * (1 - crescent) * v.moon * .8, (.86, .84, .74))


def paint_clouds(canvas, v):
    """Five circles with a flat bottom each."""
    x, y, seed, p = v.x, v.y, v.seed, v.palette
    for k in range(4):
        present = (noise(seed, 10 + k) < (.60 * v.day + .55 * v.sunset + .35 * v.night + 1.0 * v.cloudy)).float()
        size = (11 + 9 * noise(seed, 20 + k)) * v.unit * (1 + .35 * v.cloudy)
        cx = (k + .15 + .7 * noise(seed, 30 + k)) * v.w / 4
        cy = (.07 + .26 * noise(seed, 40 + k)) * v.h
        d = None
        for ox, oy, cr in ((-1.15, .10, .62), (-.45, -.30, .78), (.40, -.42, .86), (1.15, .02, .66), (0, .15, .80)):
            e = ((x - cx - ox * size) ** 2 + (y - cy - oy * size) ** 2).sqrt() - cr * size
            d = e if d is None else torch.minimum(d, e)
        d = torch.maximum(d, y - cy - .48 * size)
        alpha = (0.5 - d / 1.6).clamp(0, 1) * present * (.92 - .37 * v.night)
        blend = ((y - cy) / size * .55 + .45).clamp(0, 1)[:, None]
        canvas.paint(alpha, torch.lerp(pick(p.cloud_top, v.sky), pick(p.cloud_low, v.sky), blend))


def paint_mountains(canvas, v):
    """The highest of four peaks, lit from one side, with a cap of snow."""
    x, w, h, seed = v.x, v.w, v.h, v.seed
    ridge = peak = side = None
    for k in range(4):
        px = (k + .2 + .6 * noise(seed, 50 + k)) * w / 4
        top = (.15 + .15 * noise(seed, 60 + k)) * h
        e = top - (x - px).abs() * (.95 + .5 * noise(seed, 70 + k)) * (h / w)
        s = (px - x) * (w * .5 - v.light_x)
        if ridge is None:
            ridge, peak, side = e, top + 0 * x, s
        else:
            better = e > ridge
            ridge, peak, side = torch.maximum(ridge, e), torch.where(better, top + 0 * x, peak), torch.where(better, s, side)
    jag = ((x / (6.5 * v.unit)).frac() - .5).abs() * 5 * v.unit
    stone = (0.5 + ridge - jag * .5 - v.up).clamp(0, 1) * v.mountains
    canvas.paint(stone, torch.lerp(v.plain(.45, .47, .57) * v.tint, v.haze, .22))
    cap = .66 * peak + jag * 1.3 - 3 * v.unit
    canvas.paint(stone * (0.5 + v.up - cap).clamp(0, 1), torch.lerp(v.plain(.97, .98, 1.0) * v.tint, v.haze, .15))
    canvas.paint(stone * (0.5 - side / (w * .02)).clamp(0, 1) * .26, (.08, .09, .20))


def paint_hills(canvas, v):
    """Two rolling lines."""
    x, w, p = v.x, v.w, v.palette
    for k, (table, base, amp, far) in enumerate(((p.hill_far, .105, .045, .35), (p.hill_near, .045, .035, .12))):
        phase = noise(v.seed, 80 + k) * 6.28
        line = (base + amp * (x / w * (7.0 + 2 * k) + phase).sin() + .35 * amp * (x / w * 15 + 2.1 * phase).sin()) * v.h
        colour = torch.lerp(pick(table, v.ground) * v.tint, v.haze, far)
        canvas.paint((0.5 + line - v.up).clamp(0, 1) * v.hills, colour)


def paint_ground(canvas, v):
    """Two colours from horizon to the lower edge, and a texture each."""
    x, w, seed = v.x, v.w, v.seed
    depth = ((v.y - v.horizon) / (v.h - v.horizon)).clamp(0, 1)
    far, near = (v.palette.ground[v.ground][:, i].reshape(-1, 3, 1, 1) for i in range(2))
    roll = (1.6 * (x / w * 6.5 + seed * 20).sin() + 1.0 * (x / w * 13 + seed * 33).sin()) * v.unit * (1 - v.sea)
    land = (0.5 - v.up - roll + 1.5 * v.unit).clamp(0, 1)
    canvas.paint(land, torch.lerp(far, near, depth[:, None]) * v.tint)
    wide = (depth * 9 + .5 * (x / w * 7 + seed * 9).sin() + seed * 5)
    canvas.paint(land * (wide * 1.1).sin().clamp(0, 1) * v.grass * .16 * (.3 + depth), (.10, .34, .10))
    canvas.paint(land * (wide * 2.2 + (x / w * 17).sin() * .6).sin().clamp(0, 1) * v.sand * .14, (.55, .36, .16))
    canvas.paint(land * (wide * .9).sin().clamp(0, 1) * v.snow * .20, (.52, .68, .90))
    paint_waves(canvas, v, land, depth)
    paint_tufts(canvas, v, land, depth)


def paint_waves(canvas, v, land, depth):
    """Crests on the sea, and the glitter below sun or moon."""
    x, w, seed = v.x, v.w, v.seed
    crest = ((depth + .06) ** .6 * 34 + (x / w * (9 + 3 * seed) + 4 * depth).sin() * (.5 + 1.2 * depth) + seed * 30).sin()
    canvas.paint(land * ((crest - .72) * 6).clamp(0, 1) * v.sea * .34, torch.lerp(v.haze, v.plain(1.0, 1.0, 1.0), .35))
    glitter = (-((x - v.light_x) / (w * (.03 + .10 * depth))) ** 2).exp() * ((crest + .3) * 1.5).clamp(0, 1)
    canvas.paint(land * glitter * v.sea * (v.sun + v.moon) * .55, torch.lerp(v.haze, v.plain(1.0, .95, .80), .6))


def paint_tufts(canvas, v, land, depth):
    """Tufts of grass, at most one to a cell."""
    cell = 22 * v.unit
    column, row = (v.x / cell).floor(), (v.y / (cell * .8)).floor()
    r1 = cell_noise(column, row, v.seed, 27.17, 51.31, 53.1, 3571.7)
    r2 = cell_noise(column, row, v.seed, 17.93, 33.77, 71.9, 2917.3)
    x, y = v.x - (column + .25 + .5 * r1) * cell, (row + .55 + .3 * r2) * cell * .8 - v.y
    blade = (1.2 * v.unit - (x.abs() - y * .45).abs()).clamp(0, 1) * (y > 0).float() * (y < 5 * v.unit).float()
    canvas.paint(land * blade * (r2 < .5).float() * v.grass * (depth > .06).float() * .55, v.plain(.14, .42, .13) * v.tint)
