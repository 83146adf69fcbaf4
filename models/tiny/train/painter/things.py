"""One painter for each kind of thing."""
import math

import torch

from painter.palette import INK
from painter.shapes import box, circle, ellipse, heart_shape, polygon, segment, star_shape


def paint_house(b):
    x, y = b.x, b.y
    b.stand(.46)
    chimney = box(x, y, .22, .70, .065, .17)
    b.fill(chimney, b.roof, (.25, .17, .17))
    b.shade(chimney, .3, .1)
    wall = box(x, y, 0, .26, .37, .27)
    b.fill(wall, b.main, b.edge)
    b.shade(wall, .24, .20)
    roof = polygon(x, y, (-.48, .50), (.48, .50), (0, .93))
    b.fill(roof, b.roof, (.25, .17, .17))
    b.shade(roof, .26, .26)
    b.canvas.paint(b.cover(box(x, y, 0, .475, .37, .02)) * .30, INK)
    door = box(x, y, .15, .14, .085, .14, .03)
    b.fill(door, (.38, .23, .14), (.20, .12, .08), 1.0)
    b.fill(circle(x, y, .20, .14, .018), (.95, .80, .35))
    pane = box(x, y, -.17, .29, .095, .095, .01)
    b.fill(pane, (.68, .86, .97), (.97, .96, .92), 2.0)
    b.canvas.paint(b.cover(pane) * b.night, (1.0, .86, .40))
    cross = torch.minimum((x + .17).abs(), (y - .29).abs()) - .013
    b.canvas.paint(b.cover(torch.maximum(pane, cross)), (.97, .96, .92))


def paint_tree(b):
    x, y = b.x, b.y
    b.stand(.36)
    trunk = polygon(x, y, (-.085, 0), (.085, 0), (.05, .45), (-.05, .45))
    b.fill(trunk, (.45, .29, .17), (.25, .15, .08))
    b.shade(trunk, .3, .15)
    crown = torch.minimum(circle(x, y, 0, .72, .27), torch.minimum(circle(x, y, -.21, .52, .21), circle(x, y, .21, .52, .21)))
    crown = torch.minimum(crown, circle(x, y, 0, .50, .20))
    b.fill(crown, b.main, b.edge)
    b.shade(crown, .30, .30)
    for cx, cy, r in ((-.12, .62, .11), (.14, .76, .10), (.12, .50, .10), (-.20, .46, .08)):
        b.canvas.paint(b.cover(torch.maximum(crown, circle(x, y, cx * b.side, cy, r).abs() - .012)) * .35, b.edge)
    b.gloss(.10, .84, .13, .25)


def paint_balloon(b):
    x, y = b.x, b.y
    for ax, bx in ((-.20, -.07), (-.07, -.03), (.07, .03), (.20, .07)):
        b.fill(segment(x, y, ax, -.16, bx, -.40, .006), (.30, .22, .16))
    globe = circle(x, y, 0, .14, .37)
    cone = polygon(x, y, (-.09, -.28), (.09, -.28), (.345, .0), (-.345, .0))
    skin = torch.minimum(globe, cone)
    b.fill(skin, b.main, b.edge)
    width = (.1369 - (y - .14).clamp(-.30, .36) ** 2).clamp(min=.004).sqrt()
    stripes = (torch.asin((x / width).clamp(-1, 1)) * 4.0).cos()
    b.canvas.paint(b.cover(skin) * (stripes * 6).clamp(0, 1) * .34, (1.0, .98, .93))
    b.canvas.paint(b.cover(torch.maximum(skin, (y - .02).abs() - .035)) * .75, b.edge)
    b.shade(skin, .34, .20)
    b.gloss(.14, .30, .12, .45)
    basket = box(x, y, 0, -.46, .085, .065, .02)
    b.fill(basket, (.66, .45, .24), (.34, .21, .10))
    b.canvas.paint(b.cover(torch.maximum(basket, (y + .42).abs() - .014)), (.42, .27, .13))


def paint_boat(b):
    x, y = b.x, b.y
    b.stand(.46, island=False)
    b.fill(box(x, y, 0, .58, .018, .40), (.42, .28, .16), (.24, .15, .08), .8)
    sail = polygon(x, y, (.045, .27), (.44, .27), (.045, .93))
    b.fill(sail, (.99, .97, .91), (.60, .58, .56), 1.0)
    b.canvas.paint(b.cover(torch.maximum(sail, (y - .45).abs() - .04)), b.main)
    jib = polygon(x, y, (-.34, .27), (-.045, .27), (-.045, .80))
    b.fill(jib, (.90, .88, .84), (.60, .58, .56), 1.0)
    flag = polygon(x, y, (0, .92), (.17, .96), (0, 1.01))
    b.fill(flag, b.main, b.edge, 1.0)
    hull = torch.maximum(polygon(x, y, (-.33, -.02), (.33, -.02), (.52, .22), (-.52, .22)), -y - .01)
    b.fill(hull, b.main, b.edge)
    b.shade(hull, .30, .25)
    b.canvas.paint(b.cover(torch.maximum(hull, (y - .185).abs() - .022)), (.97, .96, .93))
    wave = torch.maximum(ellipse(x, y, 0, -.01, .50, .05), y - .035)
    b.canvas.paint(b.cover(wave) * b.sea * .8, (.90, .96, 1.0))


def paint_ball(b):
    x, y = b.x, b.y
    b.stand(.30, island=False)
    ball = circle(x, y, 0, .30, .30)
    b.fill(ball, b.main, b.edge)
    rim = ((x ** 2 + (y - .30) ** 2) / .09).clamp(0, 1)
    slope = (-b.side * x * 2.2 - (y - .30) * 2.6).clamp(0, 1)
    band = (((x + .42 * b.side) ** 2 + (y - .22) ** 2).sqrt() - .44).abs() - .035
    b.canvas.paint(b.cover(torch.maximum(ball, band)) * .85, (.98, .97, .94))
    b.canvas.paint(b.cover(ball) * (rim * slope * .55), INK)
    b.gloss(.11, .42, .085, .75)


def paint_star(b):
    x, y = b.x, b.y
    glow = (-(x ** 2 + y ** 2) / .16).exp() * .35
    b.canvas.paint(glow, (1.0, .97, .80))
    star = star_shape(x, y + .02, .46, .48) - .035
    b.fill(star, b.main, b.edge)
    facet = ((-y * .5 - b.side * x).clamp(-.3, .3) * 1.1).clamp(0, .3)
    b.canvas.paint(b.cover(star) * facet, INK)
    b.gloss(.06, .10, .15, .50)


def paint_heart(b):
    x, y = b.x, b.y
    heart = heart_shape(x / .78, (y + .40) / .78) * .78 - .01
    b.fill(heart, b.main, b.edge)
    b.canvas.paint(b.cover(heart) * ((-b.side * x - y) * .6).clamp(0, .28), INK)
    b.gloss(.20, .24, .085, .70)


def paint_flower(b):
    x, y = b.x, b.y
    b.stand(.22)
    stem = torch.maximum((x - .03 * (y * 6).sin()).abs() - .022, torch.maximum(-y, y - .62))
    b.fill(stem, (.25, .58, .22), (.11, .33, .11), 1.0)
    for s in (-1, 1):
        u, v = x * s * .80 + (y - .24) * .60, -x * s * .60 + (y - .24) * .80
        leaf = ellipse(u, v, .15, 0, .15, .055)
        b.fill(leaf, (.31, .66, .27), (.11, .33, .11), 1.0)
    petals = None
    for i in range(6):
        a = math.pi / 3 * i + .5
        d = ellipse((x * math.cos(a) + (y - .70) * math.sin(a)), (-x * math.sin(a) + (y - .70) * math.cos(a)), .165, 0, .145, .105)
        petals = d if petals is None else torch.minimum(petals, d)
        b.fill(d, b.main, b.edge, 1.2)
    b.shade(petals, .25, .22)
    core = circle(x, y, 0, .70, .095)
    b.fill(core, b.core, (.55, .32, .06), 1.0)
    b.gloss(.03, .73, .05, .5)


def paint_mushroom(b):
    x, y = b.x, b.y
    b.stand(.34)
    stem = torch.maximum(box(x, y, 0, .20, .125 + .03 * (y * 7).cos(), .24, 0.0), -y - .02)
    b.fill(stem, (.96, .90, .79), (.55, .46, .36))
    b.shade(stem, .28, .10)
    under = ellipse(x, y, 0, .40, .42, .10)
    b.fill(under, (.80, .68, .55), (.45, .36, .28))
    cap = torch.maximum(ellipse(x, y, 0, .38, .47, .50), .38 - y - .10 * (1 - (x / .47) ** 2))
    b.fill(cap, b.main, b.edge)
    b.shade(cap, .28, .24)
    for cx, cy, rx, ry in ((-.23, .55, .085, .075), (.06, .70, .10, .085), (.28, .50, .065, .07), (.02, .46, .06, .05),
                           (-.12, .78, .05, .04)):
        b.canvas.paint(b.cover(torch.maximum(cap, ellipse(x, y, cx, cy, rx, ry))), b.dots)
    b.gloss(.16, .74, .12, .30)


def paint_rocket(b):
    x, y = b.x, b.y
    flame = ellipse(x, y, 0, -.44, .095, .20)
    b.canvas.paint((-(flame.clamp(min=0) / .06) ** 2).exp() * .5, (1.0, .75, .35))
    b.fill(flame, (.99, .55, .12))
    b.fill(ellipse(x, y, 0, -.40, .055, .12), (1.0, .90, .45))
    for s in (-1, 1):
        fin = polygon(x * s, y, (.10, -.33), (.31, -.44), (.27, -.20), (.13, -.02))
        b.fill(fin, b.nose, (.30, .28, .32))
        b.shade(fin, .3, .1)
    body = torch.maximum(((x.abs() + .38) ** 2 + (y - .06) ** 2).sqrt() - .58, -y - .36)
    b.fill(body, b.main, b.edge)
    nose = torch.maximum(body, .30 - y)
    b.fill(nose, b.nose)
    b.canvas.paint(b.cover(body) * (-b.side * x * 2.4).clamp(0, .34), INK)
    b.canvas.paint(b.cover(torch.maximum(body, (x - .09 * b.side).abs() - .022)) * .40, (1.0, 1.0, 1.0))
    b.fill(box(x, y, 0, -.37, .10, .035, .015), (.33, .34, .40))
    b.fill(circle(x, y, 0, .10, .085), (.62, .86, .97), (.30, .32, .40), 2.2)
    b.gloss(.03, .13, .035, .8)


PAINTERS = [paint_house, paint_tree, paint_balloon, paint_boat, paint_ball, paint_star, paint_heart, paint_flower, paint_mushroom,
            paint_rocket]  # in the order of KINDS
