"""Descriptions of scenes in plain English."""
from world.scene import COLOURS, PLACES

NOUNS = {"house": ["house"] * 4 + ["cottage"], "tree": ["tree"], "balloon": ["balloon"] * 3 + ["hot air balloon"],
         "boat": ["boat"] * 3 + ["sailboat", "ship"], "ball": ["ball"], "star": ["star"], "heart": ["heart"], "flower": ["flower"],
         "mushroom": ["mushroom"] * 4 + ["toadstool"], "rocket": ["rocket"] * 3 + ["spaceship", "space rocket"]}
SIZE_WORDS = {"small": ["small", "little", "tiny"], "medium": [""], "big": ["big", "large", "huge"]}
COLOUR_WORDS = {c: [c] for c in COLOURS} | {"purple": ["purple"] * 3 + ["violet"]}
PLACE_WORDS = {"left": ["on the left"] * 3 + ["on the left side", "to the left", "at the left"],
               "middle": ["in the middle"] * 3 + ["in the center", "in the centre"],
               "right": ["on the right"] * 3 + ["on the right side", "to the right", "at the right"]}
SKY_WORDS = {"day": ["by day", "in daylight", "under a blue sky", "on a clear day", "on a bright day", "during the day"],
             "sunset": ["at sunset", "at sunset", "at dusk", "in the evening", "under an orange sky", "under a sunset sky"],
             "night": ["at night", "at night", "by night", "under a starry sky", "under the stars", "in the dark"],
             "cloudy": ["on a cloudy day", "under a gray sky", "under a grey sky", "under an overcast sky", "in cloudy weather",
                        "under a cloudy sky"]}
LIGHT_WORDS = {"sun": ["with the sun", "with a bright sun", "with the sun in the sky", "with a shining sun"],
               "moon": ["with the moon", "with a bright moon", "with the moon in the sky", "in the moonlight"]}
GROUND_WORDS = {"grass": ["on the grass", "on green grass", "on a meadow", "in a meadow", "in a grassy field"],
                "sand": ["on the sand", "on sand", "in the desert", "on a sandy beach", "on the beach"],
                "snow": ["in the snow", "in the snow", "on snow", "in winter", "on snowy ground"],
                "sea": ["at sea", "on the sea", "by the sea", "on the water", "on the ocean"]}
BACKDROP_WORDS = {"hills": ["with hills in the background", "with hills behind", "in front of hills", "with rolling hills"],
                  "mountains": ["with mountains in the background", "with mountains behind", "in front of mountains", "with high mountains"]}
TAGS = {"day": ["day", "daytime", "blue sky"], "sunset": ["sunset", "evening", "dusk"], "night": ["night", "starry night"],
        "cloudy": ["cloudy", "overcast", "gray sky"], "sun": ["sun"], "moon": ["moon"], "grass": ["grass", "meadow"],
        "sand": ["sand", "desert", "beach"], "snow": ["snow", "winter"], "sea": ["sea", "ocean", "water"], "hills": ["hills"],
        "mountains": ["mountains"]}
OPENINGS = [""] * 9 + ["a picture of ", "a drawing of ", "a painting of ", "an illustration of ", "a scene with ", "there is "]


def article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def noun_phrase(thing, rng, colour=True, size=True):
    words = [rng.choice(SIZE_WORDS[thing.size]) if size else "", rng.choice(COLOUR_WORDS[thing.colour]) if colour else "",
             rng.choice(NOUNS[thing.kind])]
    return " ".join(w for w in words if w)


def join(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def names_places(scene, rng):
    """Whether a caption says where things are. A single thing of which nothing is said mostly stands in the middle."""
    if len(scene.things) == 1:
        return rng.random() < (0.35 if "middle" in scene.things else 0.9)
    return rng.random() < 0.72


def things_in_words(scene, rng, certain):
    """All things of a scene in one phrase; colours, sizes and places are sometimes left out."""
    places = list(scene.things)
    rng.shuffle(places)
    phrases = {}
    for p in places:
        phrases[p] = article(noun_phrase(scene.things[p], rng, certain or rng.random() < 0.92, certain or rng.random() < 0.8))
    if len(places) == 2 and not certain and rng.random() < 0.3:
        a, b = places
        links = ["to the left of", "left of"] if PLACES.index(a) < PLACES.index(b) else ["to the right of", "right of"]
        return f"{phrases[a]} {rng.choice(links + ['next to', 'beside'])} {phrases[b]}"
    if certain or names_places(scene, rng):
        return join([f"{phrases[p]} {rng.choice(PLACE_WORDS[p])}" for p in places])
    return join([phrases[p] for p in places])


def caption(scene, rng, certain=False):
    """A description of the scene. With certain=True every attribute that can be named is named."""
    keep = lambda p: certain or rng.random() < p
    parts = []
    if keep(0.85):
        parts.append(("sky", scene.sky, SKY_WORDS))
    if keep(0.85):
        parts.append(("ground", scene.ground, GROUND_WORDS))
    if scene.backdrop != "none" and keep(0.7):
        parts.append(("backdrop", scene.backdrop, BACKDROP_WORDS))
    if scene.light != "none" and keep(0.5):
        parts.append(("light", scene.light, LIGHT_WORDS))
    rng.shuffle(parts)

    if scene.things and rng.random() < 0.12:  # a list of keywords
        tags, placed = [], certain or names_places(scene, rng)
        for p, t in scene.things.items():
            tag = noun_phrase(t, rng, keep(0.92), keep(0.8))
            tags.append(tag + (" " + rng.choice(PLACE_WORDS[p]) if placed else ""))
        tags += [rng.choice(TAGS[value]) for _, value, _ in parts]
        rng.shuffle(tags)
        return ", ".join(tags)

    if scene.things:
        text = things_in_words(scene, rng, certain)
    else:
        text = rng.choice(["a landscape", "an empty landscape", "a view", "a wide landscape"])
    phrases = [rng.choice(words[value]) for _, value, words in parts]
    opening = rng.choice(OPENINGS)
    if phrases and rng.random() < 0.2:
        opening = phrases.pop(0) + rng.choice([", ", ", ", " there is "])
    text = rng.choice([" ", ", ", ", "]).join([opening + text] + phrases)
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.25:
        text += "."
    return text
