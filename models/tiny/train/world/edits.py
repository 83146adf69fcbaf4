"""Changes of scenes, each with the instruction that asks for it."""
from dataclasses import replace

from world.captions import COLOUR_WORDS, NOUNS, PLACE_WORDS, article, noun_phrase
from world.scene import BACKDROPS, COLOURS, GROUNDS, KINDS, PLACES, SIZES, SKIES, sample_scene, sample_thing

MAKE_SKY = {"day": ["make it day", "make it daytime", "turn it into day", "change the sky to day", "change the sky to a blue sky"],
            "sunset": ["make it sunset", "make it evening", "turn it into sunset", "change the sky to sunset", "change the time to sunset"],
            "night": ["make it night", "make it night", "turn it into night", "change the sky to night", "change the time to night"],
            "cloudy": ["make it cloudy", "make the sky cloudy", "make it overcast", "change the weather to cloudy", "change the sky to gray"]}
MAKE_GROUND = {"grass": ["change the ground to grass", "turn the ground into grass", "cover the ground with grass", "put it on a meadow"],
               "sand": ["change the ground to sand", "turn the ground into sand", "cover the ground with sand", "put it in the desert"],
               "snow": ["change the ground to snow", "turn the ground into snow", "cover the ground with snow", "make it winter"],
               "sea": ["change the ground to water", "turn the ground into the sea", "replace the ground with water", "put it on the sea"]}


def pointed_at(scene, place, rng):
    """Words for one thing of the scene that fit no other: 'the house', 'the red house', 'the house on the left'."""
    t = scene.things[place]
    twins = [q for q, o in scene.things.items() if q != place and o.kind == t.kind]
    if any(scene.things[q].colour == t.colour for q in twins):
        return f"the {t.kind} {PLACE_WORDS[place][0]}"
    if twins or rng.random() < 0.35:
        return f"the {rng.choice(COLOUR_WORDS[t.colour])} {rng.choice(NOUNS[t.kind])}"
    return f"the {rng.choice(NOUNS[t.kind])}" + (f" {rng.choice(PLACE_WORDS[place])}" if rng.random() < 0.15 else "")


def copy_scene(scene):
    return replace(scene, things={p: replace(t) for p, t in scene.things.items()})


def free_places(scene):
    return [p for p in PLACES if p not in scene.things]


def set_light(new, old, lit):
    """Gives a scene with a new sky the light that goes with it."""
    new.light = {"day": "sun", "sunset": "sun", "night": "moon", "cloudy": "none"}[new.sky] if lit else "none"
    new.light_y = 0.30 if new.sky == "sunset" else min(old.light_y, 0.16)


def change_sky(scene, new, rng):
    new.sky = rng.choice([s for s in SKIES if s != scene.sky])
    set_light(new, scene, scene.light != "none" or scene.sky == "cloudy")
    return rng.choice(MAKE_SKY[new.sky])


def change_ground(scene, new, rng):
    new.ground = rng.choice([g for g in GROUNDS if g != scene.ground])
    return rng.choice(MAKE_GROUND[new.ground])


def change_backdrop(scene, new, rng):
    new.backdrop = rng.choice([b for b in BACKDROPS if b != scene.backdrop])
    if new.backdrop == "none":
        return rng.choice(["remove the", "take away the", "erase the"]) + " " + scene.backdrop
    if scene.backdrop == "none":
        return rng.choice([f"add {new.backdrop} in the background", f"add {new.backdrop}", f"put {new.backdrop} behind"])
    return rng.choice([f"replace the {scene.backdrop} with {new.backdrop}", f"turn the {scene.backdrop} into {new.backdrop}"])


def change_light(scene, new, rng):
    if scene.sky == "cloudy":
        return None
    word = "moon" if scene.sky == "night" else "sun"
    new.light = "none" if scene.light != "none" else word
    verbs = ["remove the", "take away the"] if new.light == "none" else ["add the", "add a", "show the"]
    return f"{rng.choice(verbs)} {word}"


def add_thing(scene, new, rng):
    free = free_places(scene)
    if not free:
        return None
    place = rng.choice(free)
    new.things[place] = thing = sample_thing(rng, scene.ground)
    return f"{rng.choice(['add', 'add', 'put', 'place', 'draw'])} {article(noun_phrase(thing, rng))} {rng.choice(PLACE_WORDS[place])}"


def recolour(new, place, named, rng):
    thing = new.things[place]
    thing.colour = rng.choice([c for c in COLOURS if c != thing.colour])
    c = rng.choice(COLOUR_WORDS[thing.colour])
    return rng.choice([f"paint {named} {c}", f"make {named} {c}", f"turn {named} {c}", f"change the color of {named} to {c}",
                       f"change the colour of {named} to {c}", f"{named} should be {c}"])


def remove_thing(new, place, named, rng):
    del new.things[place]
    return rng.choice(["remove", "remove", "take away", "delete", "erase", "get rid of"]) + " " + named


def replace_thing(new, place, named, rng):
    thing = new.things[place]
    thing.kind = rng.choice([k for k in KINDS if k != thing.kind])
    if rng.random() < 0.5:
        thing.colour = rng.choice(COLOURS)
        what = article(noun_phrase(thing, rng, size=False))
    else:
        what = article(rng.choice(NOUNS[thing.kind]))
    return rng.choice([f"replace {named} with {what}", f"turn {named} into {what}", f"swap {named} for {what}"])


def resize(new, place, named, rng):
    thing = new.things[place]
    grow = thing.size == "small" or (thing.size == "medium" and rng.random() < 0.5)
    thing.size = SIZES[SIZES.index(thing.size) + (1 if grow else -1)]
    return f"make {named} {rng.choice(['bigger', 'larger'] if grow else ['smaller', 'smaller'])}"


def move(new, place, named, rng):
    free = free_places(new)
    if not free:
        return None
    target = rng.choice(free)
    new.things[target] = new.things.pop(place)
    return f"move {named} to the {target}"


# How often each change is made, and what makes it: changes the new scene and returns the instruction, or None where the
# change does not fit. Changes of the scene take the old one too, changes of a thing its place and words that point at it.
EDITS = {"sky": (5, change_sky), "ground": (3, change_ground), "colour": (6, recolour), "remove": (4, remove_thing),
         "add": (6, add_thing), "replace": (4, replace_thing), "resize": (2, resize), "move": (2, move),
         "backdrop": (2, change_backdrop), "light": (1.5, change_light)}
THING_EDITS = {"colour", "remove", "replace", "resize", "move"}


def one_edit(scene, rng):
    """A random change: (name, instruction, changed scene), or None where it does not fit this scene."""
    new = copy_scene(scene)
    name = rng.choices(list(EDITS), [weight for weight, _ in EDITS.values()])[0]
    change = EDITS[name][1]
    if name not in THING_EDITS:
        text = change(scene, new, rng)
    elif scene.things:
        place = rng.choice(list(scene.things))
        text = change(new, place, pointed_at(scene, place, rng), rng)
    else:
        return None
    return None if text is None else (name, text, new)


def edit(scene, rng):
    """One change, sometimes two at once: (name, instruction, changed scene)."""
    while (first := one_edit(scene, rng)) is None:
        pass
    name, text, new = first
    if rng.random() < 0.12:
        second = one_edit(new, rng)
        if second and second[0] != name and {name, second[0]} <= {"sky", "ground", "colour", "backdrop", "light"}:
            return "two", f"{text} and {second[1]}", second[2]
    return name, text, new


def merge(rng):
    """Two pictures and an instruction that needs both: (name, instruction, first, second, result)."""
    first, second = sample_scene(rng, rng.choices((0, 1, 2), (1, 4, 3))[0]), sample_scene(rng, 1)
    new = copy_scene(first)
    thing, = second.things.values()
    if rng.random() < 0.7:
        place = rng.choice(free_places(first))
        new.things[place] = replace(thing)
        what = rng.choice([rng.choice(NOUNS[thing.kind]), "object", "thing"])
        donor, target = rng.choice([("the second picture", "the first"), ("the second image", "the first image"), ("picture 2", "picture 1"),
                                    ("image 2", "image 1"), ("the second picture", "the first picture")])
        text = rng.choice([f"put the {what} of {donor} into {target}", f"add the {what} from {donor} to {target}",
                           f"take the {what} from {donor} and put it into {target}"]) + " " + rng.choice(PLACE_WORDS[place])
        return "put", text, first, second, new
    donor = rng.choice(["the second picture", "the second image", "picture 2", "image 2"])
    if rng.random() < 0.5:
        new.sky = second.sky
        set_light(new, first, first.light != "none")
        text = rng.choice([f"use the sky of {donor}", f"take the sky from {donor}", f"give it the sky of {donor}"])
        return "sky of", text, first, second, new
    new.ground = second.ground
    text = rng.choice([f"use the ground of {donor}", f"take the ground from {donor}", f"give it the ground of {donor}"])
    return "ground of", text, first, second, new
