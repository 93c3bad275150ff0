"""What a model may answer to each task: pydantic models, which are also the JSON schemas that decoding is held to."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repair_ray.engines.language import ErrorType, Judgement

Phrase = Annotated[str, Field(max_length=120)]
Reason = Annotated[str, Field(max_length=400)]
Confidence = Annotated[float, Field(ge=0.0, le=1.0)]


class AnswerError(Exception):
    """An answer that cannot be used. The message is short and the same for the same fault: rows are counted by it."""


class Answer(BaseModel):
    """Base of every answer: no other keys, and its reason comes first, so that a model thinks before it decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MismatchAnswer(Answer):
    type: ErrorType
    query: Phrase
    candidate: Phrase


class AuditAnswer(Answer):
    reason: Reason
    mismatches: Annotated[list[MismatchAnswer], Field(max_length=6)]
    judgement: Judgement
    confidence: Confidence


class ChangeAnswer(Answer):
    before: Phrase
    after: Phrase


class CaptionDraft(Answer):
    caption: Annotated[str, Field(max_length=500)]
    changes: Annotated[list[ChangeAnswer], Field(max_length=8)]


class CaptionEditAnswer(Answer):
    reason: Reason
    feasible: bool
    drafts: Annotated[list[CaptionDraft], Field(max_length=8)]


class ImageInstructionAnswer(Answer):
    reason: Reason
    feasible: bool
    instruction: Annotated[str, Field(max_length=400)]


class ParaphraseAnswer(Answer):
    paraphrases: Annotated[list[Annotated[str, Field(max_length=500)]], Field(min_length=1, max_length=8)]


class MatchAnswer(Answer):
    reason: Reason
    matches: Literal["yes", "no", "unsure"]
    confidence: Confidence


class QueryAnswer(Answer):
    reason: Reason
    query: Annotated[str, Field(min_length=1, max_length=300)]


A = TypeVar("A", bound=Answer)


def read_json(text: str, model: type[A]) -> A:
    """Parse one JSON object of exactly this form; nothing is guessed or mended.

    Raises:
        AnswerError: empty, fenced, with prose, cut, a key twice, a missing or unknown key, a wrong type or value.
    """
    stripped = text.strip()
    if not stripped:
        raise AnswerError("empty answer")
    if stripped.startswith("```"):
        raise AnswerError("JSON inside a code fence")
    try:
        tree = json.loads(stripped, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if not stripped.startswith("{"):
            raise AnswerError("prose instead of JSON") from None
        cut = error.pos >= len(stripped) - 1 or "Unterminated" in error.msg
        raise AnswerError("JSON is cut" if cut else "JSON is malformed") from None
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join("[]" if isinstance(part, int) else str(part) for part in first["loc"]) or "answer"
        raise AnswerError(f"{where}: {first['msg'].lower()}") from None


def json_schema(model: type[Answer]) -> dict[str, Any]:
    """The JSON schema for constrained decoding, without references, which not every backend follows."""
    schema = model.model_json_schema()
    return dict(_inlined(schema, schema.get("$defs", {})))


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    # Titles and descriptions only lengthen what a model may be shown.
    return {
        key: _inlined(value, definitions)
        for key, value in node.items()
        if key not in ("$defs", "description") and not (key == "title" and isinstance(value, str))
    }


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise AnswerError("JSON has a key twice")
    return tree


def _no_constant(name: str) -> Any:
    raise AnswerError(f"JSON holds {name}")
