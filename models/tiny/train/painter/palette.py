"""The colours of everything."""
import functools
from types import SimpleNamespace

import torch

# A second colour that stands out from the first: roofs, noses of rockets, hearts of flowers, dots.
SLATE, BRICK, GOLD, RUST = (.36, .40, .50), (.62, .27, .20), (.99, .80, .20), (.72, .36, .10)
PALE, CREAM, TOMATO = (.92, .92, .94), (.98, .96, .92), (.87, .25, .20)
COLOUR_TABLES = {  # by the colour of the thing
    "main": [(.87, .15, .15), (.98, .52, .10), (.99, .84, .18), (.20, .66, .27), (.15, .38, .88),
             (.54, .24, .74), (.98, .52, .73), (.96, .96, .96), (.13, .13, .16), (.47, .28, .15)],
    "edge": [(.50, .06, .08), (.62, .28, .03), (.68, .50, .05), (.07, .36, .13), (.06, .17, .50),
             (.28, .10, .42), (.66, .25, .43), (.55, .58, .64), (.36, .36, .42), (.24, .13, .06)],
    "roof": [SLATE, SLATE, BRICK, BRICK, BRICK, BRICK, SLATE, BRICK, BRICK, SLATE],
    "core": [GOLD, GOLD, RUST, GOLD, GOLD, GOLD, GOLD, GOLD, GOLD, GOLD],
    "nose": [PALE, SLATE, TOMATO, PALE, PALE, GOLD, PALE, TOMATO, TOMATO, GOLD],
    "dots": [CREAM, CREAM, CREAM, CREAM, CREAM, CREAM, CREAM, (.80, .62, .48), (.86, .86, .90), (.93, .86, .76)],
}
SCENE_TABLES = {  # by sky
    "sky": [[(.25, .55, .93), (.52, .77, .98), (.86, .95, 1.0)], [(.33, .22, .52), (.90, .45, .45), (1.0, .76, .42)],
            [(.03, .05, .17), (.07, .11, .30), (.17, .23, .47)], [(.53, .58, .66), (.66, .71, .77), (.82, .85, .88)]],
    "cloud_top": [(1.0, 1.0, 1.0), (1.0, .80, .72), (.24, .29, .50), (.93, .94, .96)],
    "cloud_low": [(.85, .91, .98), (.86, .50, .52), (.13, .17, .36), (.62, .66, .72)],
    "on_ground": [(1.0, 1.0, 1.0), (1.0, .80, .70), (.36, .42, .66), (.84, .86, .90)],  # colour of the light
    "on_things": [(1.0, 1.0, 1.0), (1.0, .94, .88), (.80, .83, .97), (.95, .95, .97)],
    # by ground
    "ground": [[(.56, .78, .35), (.27, .58, .22)], [(.97, .88, .66), (.88, .70, .42)], [(.98, .99, 1.0), (.78, .87, .96)],
               [(.36, .69, .86), (.08, .33, .62)]],
    "hill_far": [(.49, .71, .47), (.90, .77, .52), (.84, .90, .97), (.42, .63, .56)],
    "hill_near": [(.37, .63, .32), (.85, .68, .40), (.91, .95, .99), (.33, .55, .42)],
}
INK = (.05, .06, .10)


@functools.lru_cache(maxsize=None)
def palette(device):
    return SimpleNamespace(**{k: torch.tensor(v, device=device) for k, v in (COLOUR_TABLES | SCENE_TABLES).items()})


@functools.lru_cache(maxsize=None)
def solid(colour, device):
    return torch.tensor(colour, device=device).view(1, 3, 1, 1)
