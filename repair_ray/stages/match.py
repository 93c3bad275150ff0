"""Match: the words of all captions with the visual tokens of their pictures (methods, section 3, step 1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import compress
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.engines.san.prototypes import PrototypeSums
from repair_ray.engines.san.totals import WordMatcher, WordTotals
from repair_ray.engines.words import Key, language
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.stages.captioned import captioned
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import match_pool
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.word_tables import form_rows

Needs = Literal["prototypes", "text_vectors", "forms"]


class MatchWords(RowStage):
    """Tags a batch's captions and sums up the tokens of its pictures that match their words."""

    def setup(
        self,
        folder: str,
        data: dict[str, Any],
        needs: Needs,
        language_name: Literal["en", "de"],
        prompt: str,
        alpha: float,
        kind: Literal["patches", "whole"],
        spec: dict[str, Any] | None,
        device: str,
        batch_size: int,
    ) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))
        self._needs, self._size = needs, batch_size
        encode = None
        if spec is not None:
            # Here and not above: the driver, which only names this class, needs no model library.
            from repair_ray.engines.encoder import Encoder
            from repair_ray.engines.visual_tokens import VisualTokens

            encoder = Encoder(RetrieverSpec(**spec), device, batch_size)
            encode = encoder.encode_texts
            if needs == "prototypes":
                self._tokens = VisualTokens(encoder, kind, spec["model"])
        self._matcher = WordMatcher(language(language_name), encode, prompt, alpha)

    def process(self, rows: list[Row]) -> list[Row]:
        answers: list[Row] = []
        parts: list[WordTotals] = []
        for start in range(0, len(rows), self._size):
            chunk, tokens, bad = self._with_tokens(rows[start : start + self._size])
            answers += bad
            captions = [[caption["text"] for caption in row["captions"]] for row in chunk]
            part, matches = self._matcher.match(captions, tokens)
            parts.append(part)
            answers += [
                {"image_id": row["image_id"], "matches": None if tokens is None else n, "status": tables.OK}
                for row, n in zip(chunk, matches, strict=True)
            ]
        covered = [row for row in answers if row["status"] == tables.OK]
        if covered:
            covered[0]["covers"] = [row["image_id"] for row in covered]
            covered[0]["words"] = self._shares(WordTotals.merged(parts))
        return answers

    def _with_tokens(self, rows: list[Row]) -> tuple[list[Row], list[np.ndarray] | None, list[Row]]:
        """The rows that can be used, their tokens `[T, D]` (None where none are needed), and the others."""
        if self._needs != "prototypes":
            return rows, None, []
        readable, bad, pictures = [], [], []
        for row in rows:
            try:
                pictures.append(self._store.rgb(row["uri"], row["offset"], row["length"]))
                readable.append(row)
            except ImageProblem as problem:
                bad.append(self.failed(row, str(problem.reason)))
        made = list(self._tokens(pictures))
        finite = [bool(np.isfinite(tokens).all()) for tokens in made]
        bad += [
            self.failed(row, "the retriever's features are not finite")
            for row, fine in zip(readable, finite, strict=True)
            if not fine
        ]
        return list(compress(readable, finite)), list(compress(made, finite)), bad

    def _shares(self, totals: WordTotals) -> list[dict[str, Any]]:
        return [
            {
                "lemma": key[0],
                "pos": key[1],
                "images": totals.items[place],
                "matches": int(totals.sums.matches[place]),
                "best": _or_none(totals.sums.best[place]),
                "sum": totals.sums.sums[place] if totals.sums.matches[place] else None,
                "text_vector": totals.text_vectors[key] if self._needs == "text_vectors" else None,
                "forms": form_rows(totals.forms[key]),
            }
            for place, key in enumerate(totals.keys)
        ]


def _or_none(best: np.floating) -> float | None:
    return float(best) if np.isfinite(best) else None


def match_words(
    run: Run,
    config: Config,
    product: str,
    needs: Needs,
    spec: RetrieverSpec | None,
    splits: tuple[str, ...],
    parents: tuple[str, ...] = (),
    *,
    weights: str | None = None,
    progress: Progress = quiet,
) -> None:
    """Make a `matches` table: sums by batch of the tokens that match each word, its forms, and its text feature.

    Args:
        needs: `forms` reads captions alone and needs no retriever; `text_vectors` encodes the words; `prototypes`
            encodes words and pictures.
        weights: what the retriever's weights are known by, where `parents` are not.

    Raises:
        RunError: as `run_graph`; a retriever without patch tokens stops its workers, which says what to set.
    """
    section = config.negatives
    settings: dict[str, Any] = {"splits": list(splits), "needs": needs, "negatives": {"language": section.language}}
    if spec is not None:
        settings["retriever"] = {"model": spec.model, "precision": spec.precision, "weights": weights}
        settings["negatives"]["prompt"] = section.prompt
    if needs == "prototypes":
        settings["negatives"] |= {"alpha": section.alpha, "tokens": section.tokens}
    chosen = match_pool(config, encodes=spec is not None)
    arguments = {
        "folder": str(run.folder),
        "data": config.data.model_dump(mode="json"),
        "needs": needs,
        "language_name": section.language,
        "prompt": section.prompt,
        "alpha": section.alpha,
        "kind": section.tokens,
        "spec": None if spec is None else asdict(spec),
        "device": chosen.device,
        "batch_size": config.retriever.batch_size,
    }
    run_graph(
        run,
        product,
        Recipe(settings, (IMAGES, CAPTIONS, *parents)),
        tables.MATCHES,
        [Step(MatchWords, tables.MATCHES.schema, arguments, *chosen)],
        lambda: captioned(run, splits),
        faults=config.faults,
        cluster=config.cluster,
        facts={"model": spec.model, "weights": spec.weights} if spec is not None else None,
        progress=progress,
    )


def word_totals(run: Run, product: str) -> WordTotals:
    """The shares of a `matches` table added up.

    Raises:
        RunError: a picture is in no batch's sums, or in those of two.
    """
    table = run.read(product)
    done = [row["image_id"] for row in table.select(["image_id", "status"]).to_pylist() if row["status"] == tables.OK]
    covered = [image for images in table["covers"].to_pylist() for image in images or ()]
    if sorted(covered) != sorted(done):
        raise RunError(
            f"{product}: its sums cover {len(covered)} pictures where {len(done)} were read; "
            f"start again with --redo {product}"
        )
    return WordTotals.merged(_share(part) for part in table["words"] if part.is_valid)


def _share(part: pa.ListScalar) -> WordTotals:
    """One batch's words."""
    found = pa.Table.from_struct_array(part.values)
    keys: list[Key] = list(zip(found["lemma"].to_pylist(), found["pos"].to_pylist(), strict=True))
    matches = found["matches"].to_numpy()
    matched = matches > 0
    # Only words that have a match bring a sum.
    flat = found["sum"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    count = int(matched.sum())
    sums = PrototypeSums(len(keys), len(flat) // max(1, count))
    sums.sums[matched] = flat.reshape(count, sums.sums.shape[1])
    sums.matches = matches.copy()
    sums.best = np.asarray(found["best"].fill_null(-np.inf).to_numpy(), np.float32)
    forms = {
        key: Counter({(form["tag"], form["text"]): form["count"] for form in rows})
        for key, rows in zip(keys, found["forms"].to_pylist(), strict=True)
    }
    vectors = zip(keys, found["text_vector"].to_pylist(), strict=True)
    texts = {key: np.asarray(vector, np.float32) for key, vector in vectors if vector is not None}
    return WordTotals(keys, sums, found["images"].to_pylist(), forms, texts)
