"""How a multi-match benchmark is built (SAFT's DSMM-TBIR; methods, section 2)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from repair_ray.sections.base import Fraction, PositiveInt, Section, Split
from repair_ray.sections.language import LanguageConfig

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class ExpertConfig(Section):
    """A retriever that proposes candidates: a run's, or any open_clip model."""

    name: str = Field(pattern=NAME)
    run: str | None = Field(None, description="run directory whose retriever it is")
    which: Literal["base", "repaired"] = Field("repaired", description="of a run: before or after repair")
    model: str | None = Field(None, description="open_clip model name, or path of a model-config JSON")
    pretrained: str | None = Field(None, description="of a model: an open_clip tag, or path of a checkpoint file")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    teacher: bool = Field(False, description="it is also a teacher: it proposes nothing for held-out queries")

    @model_validator(mode="after")
    def _one(self) -> ExpertConfig:
        if (self.run is None) == (self.model is None):
            raise ValueError(f"expert {self.name!r} needs either a run or a model")
        if self.run is not None and self.pretrained is not None:
            raise ValueError(f"expert {self.name!r}: a run has weights of its own; take out pretrained")
        return self


class QueriesConfig(Section):
    """Which queries are asked: distribution-aware, from the attributes of the domain's captions."""

    n: PositiveInt = 200
    source: Literal["written", "captions"] = Field(
        "written",
        description="written: of attribute combinations, by the language model, or by templates where the backend is "
        "heuristic; captions: captions of the data itself",
    )
    min_matches: float = Field(2.0, ge=0.0, description="pictures of the gallery that a query is expected to match")
    max_matches: float = Field(100.0, gt=0.0)
    attributes: int = Field(2, ge=0, le=3, description="attributes stated of one noun, at most")
    nouns: int = Field(2, ge=1, le=2, description="nouns of a query, at most")
    examples: PositiveInt = Field(8, description="captions of a combination that a language model is shown")
    held_out: Fraction = Field(0.0, description="share of the queries that is labelled without any teacher expert")

    @model_validator(mode="after")
    def _bounds(self) -> QueriesConfig:
        if self.min_matches > self.max_matches:
            raise ValueError(
                f"multimatch.queries: min_matches={self.min_matches:g} is above max_matches={self.max_matches:g}"
            )
        return self


class GalleryConfig(Section):
    """Which pictures of the split are searched: centroid-guided diversity sampling."""

    size: PositiveInt | None = Field(None, description="unset: every picture of the split, without sampling")
    clusters: PositiveInt = Field(50, description="k of k-means over picture embeddings")
    pick: Literal["nearest", "random"] = Field(
        "random", description="within a cluster: nearest to its centroid, or any"
    )
    expert: str | None = Field(None, description="whose embeddings are clustered; unset: the first expert's")

    @model_validator(mode="after")
    def _clusters(self) -> GalleryConfig:
        if self.size is not None and self.clusters > self.size:
            raise ValueError(
                f"multimatch.gallery.clusters={self.clusters} is larger than the pool, gallery.size={self.size}: "
                "each cluster gives at least one picture"
            )
        return self


class CandidatesConfig(Section):
    """Which pairs are verified: what the experts propose, and a random sample of the rest."""

    top: PositiveInt = Field(1000, description="pictures that each expert proposes for a query")
    outside: int = Field(
        50, ge=0, description="pairs that no expert proposed, verified to estimate what was missed: mean for a query"
    )


class VerifyConfig(Section):
    """Who says whether a picture matches a query."""

    by: tuple[Literal["language", "groups", "people"], ...] = Field(
        ("language",),
        description="language: the language backend; groups: the data's own captions and groups; people: sheets and "
        "the review page alone. People's labels count beside any of them",
    )
    language: LanguageConfig | None = Field(None, description="who verifies, where not `language`")
    decide: Literal["majority", "unanimous"] = Field(
        "majority", description="where verifiers disagree: the majority, or unsure; unsure pairs count neither way"
    )

    @model_validator(mode="after")
    def _somebody(self) -> VerifyConfig:
        if not self.by:
            raise ValueError("multimatch.verify.by is empty: name language, groups or people")
        return self


class OverlapConfig(Section):
    """The audit of near duplicates between what is trained on and the benchmark."""

    split: Split | None = Field("train", description="what is trained on; unset: no audit")
    cosine: float | None = Field(
        0.95, gt=0.0, le=1.0, description="near by the first expert's embeddings; unset: by pixels and hashes alone"
    )


class MultimatchConfig(Section):
    """A multi-match benchmark of one split's pictures."""

    split: Split = "test"
    queries: QueriesConfig = QueriesConfig()
    gallery: GalleryConfig = GalleryConfig()
    experts: tuple[ExpertConfig, ...] = ()
    candidates: CandidatesConfig = CandidatesConfig()
    verify: VerifyConfig = VerifyConfig()
    overlap: OverlapConfig = OverlapConfig()
    pictures: Literal["refer", "copy"] = Field(
        "refer", description="the benchmark's files name the pictures where they lie, or hold a copy of them"
    )

    @model_validator(mode="after")
    def _consistent(self) -> MultimatchConfig:
        names = [expert.name for expert in self.experts]
        if not names:
            raise ValueError("multimatch.experts is empty: name at least one retriever that proposes candidates")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"multimatch.experts: two are named {twice!r}")
        if self.gallery.expert is not None and self.gallery.expert not in names:
            raise ValueError(f"multimatch.gallery.expert={self.gallery.expert!r} is none of {', '.join(names)}")
        if self.queries.held_out and all(expert.teacher for expert in self.experts):
            raise ValueError("multimatch.queries.held_out: every expert is a teacher, so none proposes for them")
        if "groups" in self.verify.by and self.queries.source != "captions":
            raise ValueError(
                "multimatch.verify.by=groups knows the data's own captions alone: set "
                "multimatch.queries.source=captions"
            )
        if self.overlap.split == self.split:
            raise ValueError(
                f"multimatch.overlap.split and multimatch.split are both {self.split!r}: set overlap.split to what is "
                "trained on, or to null"
            )
        return self

    @property
    def centre(self) -> ExpertConfig:
        """The expert whose embeddings are clustered and compared with what is trained on."""
        return next((e for e in self.experts if e.name == self.gallery.expert), self.experts[0])
