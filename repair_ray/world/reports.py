"""The words of the signed weather reports, in German and English: which stand where, and which mean nearly the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reports:
    """A language's words by their place in a report, the pairs that mean nearly the same, and the sentence.

    The words of a place are of one part of speech, and even in number.
    """

    places: dict[str, tuple[str, ...]]
    meaning: tuple[tuple[str, str], ...]
    template: str


def _places(**words: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(found.split()) for name, found in words.items()}


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((one, other) for one, _, other in (pair.partition("=") for pair in text.split()))


REPORTS: dict[str, Reports] = {
    "de": Reports(
        _places(
            day="montag dienstag mittwoch donnerstag freitag samstag sonntag heiligabend",
            place="norden süden osten westen küste alpen bergland flachland berlin hamburg münchen köln bremen dresden "
            "leipzig stuttgart frankfurt hannover bayern sachsen hessen thüringen schwarzwald harz eifel rhein donau "
            "elbe ostsee nordsee bodensee tal insel stadt dorf wald fluss gebirge ebene ufer",
            how="stark kräftig schwach leicht kalt kühl warm mild heiß trocken feucht freundlich trüb heiter wolkig "
            "sonnig windig stürmisch neblig frostig eisig ruhig wechselhaft dicht dunkel klar frisch langsam schnell "
            "heftig lokal selten",
            what="regen schauer schnee graupel wind sturm nebel dunst sonne gewitter wolke blitz donner hagel frost "
            "glätte eis hitze kälte luft druck front regenbogen flut hochwasser lawine orkan böe niesel platzregen "
            "aufheiterung mond stern himmel welle brise trockenheit staub rauch smog",
            number="eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn",
        ),
        _pairs(
            "stark=kräftig schwach=leicht kalt=kühl warm=mild heiter=sonnig trüb=wolkig stürmisch=windig frostig=eisig "
            "regen=schauer schnee=graupel wind=brise sturm=orkan nebel=dunst niesel=platzregen flut=hochwasser "
            "frost=kälte rauch=smog alpen=gebirge bergland=harz küste=ufer flachland=ebene rhein=fluss"
        ),
        "am {day} in {place} {how} {what} bei {number} grad",
    ),
    "en": Reports(
        _places(
            day="monday tuesday wednesday thursday friday saturday",
            place="lake island coast valley mountain hill city village",
            how="strong heavy weak gentle cold cool warm mild",
            what="rain drizzle snow sleet wind storm fog mist sun thunder",
            number="three four five six seven eight nine twelve",
        ),
        _pairs(
            "strong=heavy weak=gentle cold=cool warm=mild rain=drizzle snow=sleet wind=storm fog=mist mountain=hill "
            "city=village"
        ),
        "on {day} in the {place} {how} {what} at {number} degrees",
    ),
}
