"""Rows of numbers to pictures, many at once."""
import torch

from painter.canvas import Brush, Canvas
from painter.landscape import paint_landscape
from painter.palette import COLOUR_TABLES, palette
from painter.things import PAINTERS
from world.scene import GROUNDS, KINDS, PLACES, ROW_SCENE, ROW_THING, SKIES, scene_row


def draw(rows, h, w):
    """rows [n, 29] -> pictures [n, 3, h, w] with values in 0..1."""
    canvas = paint_landscape(rows, h, w)
    for place in range(len(PLACES)):
        first = ROW_SCENE + place * ROW_THING
        for kind, painter in enumerate(PAINTERS):
            idx = (rows[:, first] == kind).nonzero(as_tuple=True)[0]
            if len(idx) == 0:
                continue
            part = Canvas(canvas.rgb[idx])
            painter(brush_for(part, rows[idx], first, KINDS[kind], h, w))
            canvas.rgb[idx] = part.rgb
    return canvas.rgb.clamp(0, 1)


def brush_for(canvas, rows, first, kind, h, w):
    """For things of one kind; their numbers start at column `first` of the rows."""
    column = lambda i: rows[:, i].view(-1, 1, 1)
    device, light_x, thing_x, thing_y = rows.device, column(5), column(first + 2), column(first + 3)
    size = column(first + 4) * (0.90 * min(w / 3, h * 0.36))
    y = (torch.arange(h, device=device).float() + .5).view(1, h, 1)
    x = (torch.arange(w, device=device).float() + .5).view(1, 1, w)
    bx, by = ((x - thing_x * w) / size), ((thing_y * h - y) / size)
    if kind in ("rocket", "star", "heart"):
        a = column(first + 5) * (.30 if kind == "rocket" else .16)
        bx, by = bx * a.cos() + by * a.sin(), by * a.cos() - bx * a.sin()
    sky, ground, colour = rows[:, 0].long(), rows[:, 2].long(), rows[:, first + 1].long()
    tables = palette(device)
    tint = tables.on_things[sky].view(-1, 3, 1, 1)
    colours = {name: getattr(tables, name)[colour].view(-1, 3, 1, 1) * tint for name in COLOUR_TABLES}
    side = torch.where(light_x > thing_x, 1.0, -1.0)
    night = (sky == SKIES.index("night")).float().view(-1, 1, 1)
    sea = (ground == GROUNDS.index("sea")).float().view(-1, 1, 1)
    return Brush(canvas, bx, by, 1 / size, colours, side, night, sea)


def render(scenes, h=256, w=256, device="cuda"):
    """Pictures [n, 3, h, w] with values in -1..1."""
    return draw(torch.tensor([scene_row(s) for s in scenes], dtype=torch.float32, device=device), h, w) * 2 - 1
