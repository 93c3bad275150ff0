"""Strategies: one that corrects failures with the query's own caption, one that writes words in another order."""

import random

from repair_ray.engines.language import Draft


class Prefixed:
    works_on = "failures"

    def __init__(self, settings):
        self.prefix = settings.get("prefix", "see:")

    def drafts(self, case, seed):
        return [Draft(f"{self.prefix} {case.query_captions[0]}"), Draft("never", problem="never right")]


class Shuffled:
    works_on = "captions"

    def __init__(self, settings):
        pass

    def drafts(self, case, seed):
        words = case.candidate_text.split()
        random.Random(seed).shuffle(words)
        return [Draft(" ".join(words)), Draft(case.candidate_text)]
