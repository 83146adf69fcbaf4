"""What can be in a picture: scenes, how they are drawn by lot, and as rows of numbers."""
import zlib
from dataclasses import dataclass, field

SKIES = ["day", "sunset", "night", "cloudy"]
LIGHTS = ["none", "sun", "moon"]
GROUNDS = ["grass", "sand", "snow", "sea"]
BACKDROPS = ["none", "hills", "mountains"]
KINDS = ["house", "tree", "balloon", "boat", "ball", "star", "heart", "flower", "mushroom", "rocket"]
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black", "brown"]
PLACES = ["left", "middle", "right"]
SIZES = ["small", "medium", "big"]
FLOATING = {"balloon", "star", "heart", "rocket"}  # these hang in the sky, the others stand below
PLACE_X = {"left": 0.20, "middle": 0.5, "right": 0.80}
SIZE_SCALE = {"small": 0.66, "medium": 1.0, "big": 1.30}


@dataclass
class Thing:
    kind: str
    colour: str
    size: str
    dx: float = 0.0  # where exactly, and how tilted: never mentioned in words
    dy: float = 0.0
    tilt: float = 0.0


@dataclass
class Scene:
    sky: str
    light: str
    ground: str
    backdrop: str
    things: dict = field(default_factory=dict)  # place -> Thing
    seed: float = 0.0  # shapes of clouds, hills, waves
    light_x: float = 0.5
    light_y: float = 0.15
    horizon: float = 0.64


def sample_thing(rng, ground):
    weights = [4.0 if kind == "boat" and ground == "sea" else 1.0 for kind in KINDS]
    return Thing(rng.choices(KINDS, weights)[0], rng.choice(COLOURS), rng.choice(SIZES),
                 rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(-1, 1))


def sample_scene(rng, n_things=None):
    sky = rng.choices(SKIES, (3, 2, 3, 1.5))[0]
    light = {"day": "sun", "sunset": "sun", "night": "moon"}.get(sky, "none")
    if rng.random() < 0.35:
        light = "none"
    scene = Scene(sky, light, rng.choices(GROUNDS, (3, 2, 2.5, 2.5))[0], rng.choice(BACKDROPS),
                  seed=rng.random(), horizon=rng.uniform(0.60, 0.67))
    if n_things is None:
        n_things = rng.choices((0, 1, 2, 3), (4, 40, 34, 22))[0]
    places = rng.sample(PLACES, n_things) if n_things != 1 else rng.choices(PLACES, (3, 4, 3))
    for place in places:
        scene.things[place] = sample_thing(rng, scene.ground)
    place_light(scene, rng)
    return scene


def place_light(scene, rng):
    """Puts sun or moon where no floating thing hides it."""
    taken = [PLACE_X[p] for p, t in scene.things.items() if t.kind in FLOATING]
    spots = [x for x in (0.13, 0.36, 0.64, 0.87) if all(abs(x - t) > 0.12 for t in taken)] or [0.345, 0.655]
    scene.light_x = rng.choice(spots) + rng.uniform(-0.02, 0.02)
    scene.light_y = rng.uniform(0.27, 0.33) if scene.sky == "sunset" else rng.uniform(0.13, 0.19)


def scene_key(scene):
    """A scene's attributes as one string: all that words can say about it."""
    things = [f"{p}:{t.kind},{t.colour},{t.size}" for p, t in sorted(scene.things.items())]
    return "|".join([scene.sky, scene.light, scene.ground, scene.backdrop, *things])


def is_held_out(scene):
    """One combination of attributes in forty is never shown in training."""
    return zlib.crc32(scene_key(scene).encode()) % 40 == 0


def scene_labels(scene):
    """What the judge must read off the picture; 0 stands for 'nothing there' in the things' labels."""
    labels = [SKIES.index(scene.sky), LIGHTS.index(scene.light), GROUNDS.index(scene.ground), BACKDROPS.index(scene.backdrop)]
    for place in PLACES:
        t = scene.things.get(place)
        labels += [1 + KINDS.index(t.kind), 1 + COLOURS.index(t.colour), 1 + SIZES.index(t.size)] if t else [0, 0, 0]
    return labels


LABEL_SIZES = [len(SKIES), len(LIGHTS), len(GROUNDS), len(BACKDROPS)] + [1 + len(KINDS), 1 + len(COLOURS), 1 + len(SIZES)] * 3
# A scene as a row of numbers for the painter: eight for the scene, seven for each place.
ROW_SCENE, ROW_THING = 8, 7


def scene_row(scene):
    row = [SKIES.index(scene.sky), LIGHTS.index(scene.light), GROUNDS.index(scene.ground), BACKDROPS.index(scene.backdrop),
           scene.seed, scene.light_x, scene.light_y, scene.horizon]
    for place in PLACES:
        t = scene.things.get(place)
        if t is None:
            row += [-1.0] + [0.0] * (ROW_THING - 1)
            continue
        y = 0.30 + 0.035 * t.dy if t.kind in FLOATING else 0.835 + 0.025 * t.dy
        row += [KINDS.index(t.kind), COLOURS.index(t.colour), PLACE_X[place] + 0.018 * t.dx, y, SIZE_SCALE[t.size], t.tilt, t.dx]
    return row
