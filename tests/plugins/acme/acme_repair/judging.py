"""A judge that lets every failure through with as much confidence as it is told, but for what it never judges."""

from pydantic import BaseModel, Field

from repair_ray.engines.language import Verdict


class Lenient:
    class Settings(BaseModel, extra="forbid"):
        confidence: float = Field(0.5, ge=0.0, le=1.0)
        unsure_of: str = Field("", description="abstain where the query's captions have this word")

    def __init__(self, settings):
        self.settings = settings

    def audit(self, case):
        word = self.settings.unsure_of
        if word and any(word in caption.split() for caption in case.query_captions):
            return Verdict("unsure", confidence=self.settings.confidence, reason=f"speaks of {word}")
        return Verdict("valid", confidence=self.settings.confidence)
