"""The English that the heuristic backend knows: closed classes and small tables, nothing about a data set (ours)."""

from __future__ import annotations

import re
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLASSES: dict[str, dict[str, str]] = {
    "size": {
        "small": "small little tiny mini miniature",
        "medium-sized": "medium-sized",
        "large": "large big huge giant enormous",
    },
    "colour": {
        **{c: c for c in _words("red green blue yellow orange black white brown gold silver beige teal cyan")},
        "grey": "grey gray",
        "purple": "purple violet",
        "pink": "pink magenta",
    },
    "texture": {
        "solid": "solid plain filled",
        "striped": "striped stripy stripey",
        "dotted": "dotted spotted polka-dot",
        "hollow": "hollow outlined unfilled",
        "checkered": "checkered checked chequered",
    },
    "tone": {
        "light": "light pale bright",
        "medium-light": "medium-light",
        "medium": "medium",
        "medium-dark": "medium-dark",
        "dark": "dark",
    },
    "age": {"young": "young", "old": "old elderly", "adult": "adult"},
}
# word -> (class, value)
ATTRIBUTES: dict[str, tuple[str, str]] = {
    word: (cls, value) for cls, values in _CLASSES.items() for value, words in values.items() for word in words.split()
}
# The order in which English puts the classes before a noun.
CLASS_ORDER: tuple[str, ...] = ("size", "age", "tone", "colour", "texture")

_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS: tuple[str, ...] = tuple(_NUMBERS.split())
NUMBERS: dict[str, int] = {**{w: n for n, w in enumerate(NUMBER_WORDS) if n}, "a": 1, "an": 1, "single": 1, "both": 2}
DETERMINERS = _words(
    "the this that these those his her its their my your our some any each every several many few "
    "another other all both no"
)
# These are never part of a noun phrase's inside, so they also end a phrase that ran into them.
STARTERS = DETERMINERS | {"a", "an"}
# A caption is data. A clause that speaks to its reader, not of the picture, says nothing about the picture.
READER_WORDS = _words(
    "ignore disregard forget pretend instruction instructions verdict assistant json benign_match bad_ground_truth"
)
# These do so only where a clause begins with them: a dress may have a print.
ORDERS = _words("answer respond reply output print prompt")
CLAUSE_STARTERS = frozenset(".;!?,:") | _words("and then please now")
GROUPS: dict[str, int | None] = {
    **dict.fromkeys(_words("group bunch crowd lot set piece row number variety kind type part")),
    **dict.fromkeys(_words("pair couple"), 2),
    "trio": 3,
}
# Nouns that name the picture itself, not a thing in it.
PICTURE_NOUNS = _words("picture image photo photograph drawing illustration scene view there")

# (phrase of words, axis, sign): "X <words> Y" puts X at `sign` of Y on `axis`.
RELATION_PHRASES: tuple[tuple[str, str, int], ...] = (
    ("to the left of", "horizontal", -1),
    ("on the left of", "horizontal", -1),
    ("on the left side of", "horizontal", -1),
    ("left of", "horizontal", -1),
    ("to the right of", "horizontal", 1),
    ("on the right of", "horizontal", 1),
    ("on the right side of", "horizontal", 1),
    ("right of", "horizontal", 1),
    ("above", "vertical", -1),
    ("over", "vertical", -1),
    ("on top of", "vertical", -1),
    ("atop", "vertical", -1),
    ("below", "vertical", 1),
    ("under", "vertical", 1),
    ("underneath", "vertical", 1),
    ("beneath", "vertical", 1),
    ("in front of", "depth", -1),
    ("behind", "depth", 1),
    ("inside of", "containment", -1),
    ("inside", "containment", -1),
    ("in", "containment", -1),
    ("containing", "containment", 1),
    ("on", "support", -1),
)
RELATIONS: tuple[tuple[tuple[str, ...], str, int], ...] = tuple(
    sorted(((tuple(words.split()), axis, sign) for words, axis, sign in RELATION_PHRASES), key=lambda r: -len(r[0]))
)
# "X with Y to its right", "X and on its left Y": the thing named last stands on that side of the one before.
POSTFIX_RELATIONS: tuple[tuple[tuple[str, ...], str, int], ...] = tuple(
    ((prep, article, side), "horizontal", sign)
    for side, sign in (("left", -1), ("right", 1))
    for prep in ("to", "on")
    for article in ("its", "the")
)
RELATION_WORDS: dict[tuple[str, int], str] = {
    ("horizontal", -1): "left of",
    ("horizontal", 1): "right of",
    ("vertical", -1): "above",
    ("vertical", 1): "below",
    ("depth", -1): "in front of",
    ("depth", 1): "behind",
    ("containment", -1): "in",
    ("containment", 1): "containing",
    ("support", -1): "on",
    ("support", 1): "under",
}
STRICT_AXES = frozenset({"horizontal", "vertical", "depth"})
OPPOSITE_WORDS: dict[str, str] = {
    "left": "right",
    "right": "left",
    "above": "below",
    "below": "above",
    "over": "under",
    "under": "over",
    "beneath": "above",
    "underneath": "above",
    "behind": "in front of",
}
LINKERS = _words("and or but , ; : . & with plus")
PREPOSITIONS = _words(
    "of at by near next beside besides along alongside around about through into onto toward towards from to for "
    "up down off out across against between among amid during while as after before beyond past like than "
    "outside within without upon together away on in inside over under"
)
AUXILIARIES = _words("is are was were be been being has have had do does did can will would 's")
FILLERS = _words(
    "who which that where when what it he she they them him there here also very just then not both side "
    "each other itself themselves"
)

_ACTIONS = (
    "stand stands standing|sit sits sitting|lie lies lying|lay lays laying|run runs running|walk walks walking|"
    "jump jumps jumping|leap leaps leaping|swim swims swimming|sleep sleeps sleeping|fly flies flying|"
    "climb climbs climbing|kneel kneels kneeling|dance dances dancing|ski skis skiing|surf surfs surfing|"
    "play plays playing|hold holds holding|wear wears wearing|ride rides riding|look looks looking|eat eats eating|"
    "drink drinks drinking|carry carries carrying|throw throws throwing|catch catches catching|chase chases chasing|"
    "smile smiles smiling|watch watches watching|take takes taking|pull pulls pulling|push pushes pushing|"
    "kick kicks kicking|hit hits hitting|make makes making|go goes going|pose poses posing|try tries trying|"
    "swing swings swinging|slide slides sliding|fall falls falling|read reads reading|bite bites biting"
)
# Every form of a verb -> its base, and base -> (base, -s, -ing).
ACTION_FORMS: dict[str, tuple[str, str, str]] = {}
ACTIONS: dict[str, str] = {}
for _entry in _ACTIONS.split("|"):
    _base, _third, _ing = _entry.split()
    ACTION_FORMS[_base] = (_base, _third, _ing)
    ACTIONS.update({_base: _base, _third: _base, _ing: _base})
# Of these, one body does one at a time, so they can contradict each other.
POSTURES = _words("stand sit lie run walk jump swim sleep fly climb kneel")
# Words in -ing or of a verb's form that are nouns.
ING_NOUNS = _words(
    "building clothing railing ceiling evening morning wedding painting something nothing anything everything "
    "fishing crossing awning landing swing swings slide slides parking"
)

# Words for one thing; a word may be in several groups. Disjoint groups (man, woman) stay apart.
_SYNONYMS = (
    "man guy gentleman male",
    "woman lady female",
    "boy",
    "girl",
    "child kid toddler baby",
    "person people human someone",
    "dog puppy",
    "cat kitten",
    "bicycle bike",
    "motorcycle motorbike",
    "car automobile",
    "sea ocean",
    "photo picture",
    "rock boulder",
    "couch sofa",
    "street road",
    "stair step",
    "t-shirt tee shirt",
)
# Of these, each may stand for the others without a change of meaning.
SAME_NOUNS: dict[str, tuple[str, ...]] = {
    word: tuple(group.split())
    for group in ("bicycle bike", "motorcycle motorbike", "car automobile", "sea ocean", "couch sofa", "rock boulder")
    for word in group.split()
}
CANONICAL: dict[str, str] = {word: group.split()[0] for group in _SYNONYMS for word in group.split()}
# kind -> a wider word that holds of it.
WIDER: dict[str, frozenset[str]] = {
    "man": frozenset({"person", "adult"}),
    "woman": frozenset({"person", "adult"}),
    "boy": frozenset({"person", "child", "man"}),
    "girl": frozenset({"person", "child", "woman"}),
    "child": frozenset({"person"}),
    "dog": frozenset({"animal"}),
    "cat": frozenset({"animal"}),
    "horse": frozenset({"animal"}),
}

_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "person",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "leaves": "leaf",
    "wolves": "wolf",
    "knives": "knife",
    "policemen": "policeman",
    "firemen": "fireman",
    "buses": "bus",
}
_IRREGULAR_PLURAL = {one: many for many, one in _IRREGULAR.items()}
_UNCHANGED = _words("sheep deer fish jeans shorts pants sunglasses glasses scissors trousers clothes tennis")


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Strip a regular or common irregular plural: `boxes` -> `box`, `cities` -> `city`; other words are returned."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _UNCHANGED or len(word) < 4 or re.search(r"(ss|us|is)$", word):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if re.search(r"(ss|x|zz|ch|sh)es$", word):
        return word[:-2]
    return word.removesuffix("s")


def plural(word: str) -> str:
    """The plural of a singular noun, by the regular rules and the common irregular ones."""
    if word in _IRREGULAR_PLURAL:
        return _IRREGULAR_PLURAL[word]
    if word in _UNCHANGED:
        return word
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")


def is_plural(word: str) -> bool:
    """Whether the word's form is a plural one."""
    return singular(word) != word


@lru_cache(maxsize=65536)
def canonical(noun: str) -> str:
    """The name of a noun's synonym group, or the noun's singular."""
    one = singular(noun)
    return CANONICAL.get(one, one)


def is_a(narrow: str, wide: str) -> bool:
    """Whether a thing called `narrow` may be called `wide`; both canonical nouns."""
    return narrow == wide or wide in WIDER.get(narrow, frozenset())


def article(next_word: str) -> str:
    """`a` or `an`, by the letter (and a few sounds) that the next word begins with."""
    word = next_word.lower()
    if re.match(r"(uni|use|euro|one\b|once|ewe)", word):
        return "a"
    return "an" if re.match(r"[aeiou]|hour|honest", word) else "a"


def number_word(count: int) -> str:
    """`two` for 2; digits beyond twelve."""
    return NUMBER_WORDS[count] if 0 < count < len(NUMBER_WORDS) else str(count)
