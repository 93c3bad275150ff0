"""Match: the words of all captions with the visual tokens of their pictures (methods, section 3, step 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.engines.san.prototypes import PrototypeSums
from repair_ray.engines.san.vocabulary import Form, count_forms
from repair_ray.engines.words import Key, Word, keywords, language
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.stages.captioned import captioned
from repair_ray.stages.embed import device_of
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.rows import Row, RowStage

# A batch's sums are as large for many pictures as for few.
ROWS = 1024
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
        self._language = language(language_name)
        self._needs, self._prompt, self._alpha = needs, prompt, alpha
        self._vectors: dict[Key, np.ndarray] = {}
        self._size = batch_size
        if spec is not None:
            # Here and not above: the driver, which only names this class, needs no model library.
            from repair_ray.engines.encoder import Encoder
            from repair_ray.engines.visual_tokens import VisualTokens

            self._encoder = Encoder(RetrieverSpec(**spec), device, batch_size)
            if needs == "prototypes":
                self._tokens = VisualTokens(self._encoder, kind, spec["model"])

    def process(self, rows: list[Row]) -> list[Row]:
        words = [keywords(list(self._words(row))) for row in rows]
        keys = sorted({word.key for found in words for word in found})
        place = {key: n for n, key in enumerate(keys)}
        features = self._features(keys)
        sums = PrototypeSums(len(keys), features.shape[1])
        answers: list[Row] = []
        held: Counter[Key] = Counter()
        forms: dict[Key, Counter[Form]] = {key: Counter() for key in keys}
        for row, found, tokens in self._with_tokens(rows, words):
            if isinstance(tokens, str):
                answers.append(self.failed(row, tokens))
                continue
            own = {word.key for word in found}
            matches = None if tokens is None else sums.add(features, tokens, [place[k] for k in own], self._alpha)
            held.update(own)
            for key, counts in count_forms(found).items():
                forms[key].update(counts)
            answers.append({"image_id": row["image_id"], "matches": matches, "status": tables.OK})
        covered = [row for row in answers if row["status"] == tables.OK]
        if covered:
            covered[0]["covers"] = [row["image_id"] for row in covered]
            covered[0]["words"] = [
                self._share(key, held[key], forms[key], sums, place[key]) for key in keys if held[key]
            ]
        return answers

    def _words(self, row: Row) -> Iterable[Word]:
        for caption in row["captions"]:
            yield from self._language.words(caption["text"])

    def _features(self, keys: list[Key]) -> np.ndarray:
        """Unit features of bare words `[W, D]`, each encoded once; `[W, 0]` where none are needed."""
        if self._needs == "forms" or not keys:
            return np.zeros((len(keys), 0), np.float32)
        new = [key for key in keys if key not in self._vectors]
        made = self._encoder.encode_texts([self._prompt.replace("{}", lemma) for lemma, _ in new])
        self._vectors.update(zip(new, made, strict=True))
        return np.stack([self._vectors[key] for key in keys])

    def _with_tokens(
        self, rows: list[Row], words: list[list[Word]]
    ) -> Iterable[tuple[Row, list[Word], np.ndarray | str | None]]:
        """Each row with its words and its tokens: `[T, D]`, None where none are needed, or why there are none."""
        for start in range(0, len(rows), self._size):
            pictures: list[Any] = []
            tokens: list[str | None] = []
            chunk = rows[start : start + self._size]
            for row in chunk:
                tokens.append(self._picture(row, pictures) if self._needs == "prototypes" else None)
            made = iter(self._tokens(pictures)) if pictures else iter(())
            for row, found, problem in zip(chunk, words[start : start + self._size], tokens, strict=True):
                yield row, found, (_finite(next(made)) if problem == "" else problem)

    def _picture(self, row: Row, pictures: list[Any]) -> str:
        """Add the row's picture; returns "" or why it cannot be read."""
        try:
            pictures.append(self._store.rgb(row["uri"], row["offset"], row["length"]))
        except ImageProblem as problem:
            return str(problem.reason)
        return ""

    def _share(self, key: Key, images: int, forms: Counter[Form], sums: PrototypeSums, place: int) -> dict[str, Any]:
        matches = int(sums.matches[place])
        return {
            "lemma": key[0],
            "pos": key[1],
            "images": images,
            "matches": matches,
            "best": sums.best[place] if np.isfinite(sums.best[place]) else None,
            "sum": sums.sums[place] if matches else None,
            "text_vector": self._vectors[key] if self._needs == "text_vectors" else None,
            "forms": [{"tag": tag, "text": text, "count": n} for (tag, text), n in sorted(forms.items())],
        }


def _finite(tokens: np.ndarray) -> np.ndarray | str:
    return tokens if np.isfinite(tokens).all() else "the retriever's features are not finite"


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
    arguments = {
        "folder": str(run.folder),
        "data": config.data.model_dump(mode="json"),
        "needs": needs,
        "language_name": section.language,
        "prompt": section.prompt,
        "alpha": section.alpha,
        "kind": section.tokens,
        "spec": None if spec is None else asdict(spec),
        "device": device_of(config),
        "batch_size": config.retriever.batch_size,
    }
    pool = config.pool if spec is not None else config.pool.on_cpu()
    pool = pool.model_copy(update={"rows_per_block": max(ROWS, pool.rows_per_block)})
    run_graph(
        run,
        product,
        Recipe(settings, (IMAGES, CAPTIONS, *parents)),
        tables.MATCHES,
        [Step(MatchWords, tables.MATCHES.schema, arguments, pool)],
        lambda: captioned(run, splits),
        faults=config.faults,
        facts={"model": spec.model, "weights": spec.weights} if spec is not None else None,
        progress=progress,
    )


@dataclass
class WordTotals:
    """All words of a data set: their keys, in order, with sums over all pictures.

    `images` counts the pictures whose captions hold a word; `text_vectors` are absent where they were not asked for.
    """

    keys: list[Key]
    sums: PrototypeSums
    images: list[int]
    forms: dict[Key, Counter[Form]]
    text_vectors: dict[Key, np.ndarray]


def word_totals(run: Run, product: str) -> WordTotals:
    """The shares of a `matches` table added up; the same to the last bit however its pictures were batched.

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
    shares = [_shares(part) for part in table["words"] if part.is_valid]
    keys = sorted({key for share in shares for key in share["keys"]})
    place = {key: n for n, key in enumerate(keys)}
    width = max((part["sums"].shape[1] for part in shares), default=0)
    totals = WordTotals(keys, PrototypeSums(len(keys), width), [0] * len(keys), {key: Counter() for key in keys}, {})
    for share in shares:
        places = [place[key] for key in share["keys"]]
        part = PrototypeSums(len(places), width)
        part.matches, part.best = share["matches"], share["best"]
        if len(share["sums"]):
            part.sums[share["matches"] > 0] = share["sums"]
        totals.sums.merge(part, places)
        for key, at, images, forms in zip(share["keys"], places, share["images"], share["forms"], strict=True):
            totals.images[at] += images
            totals.forms[key].update({(form["tag"], form["text"]): form["count"] for form in forms})
        for key, vector in zip(share["keys"], share["text_vectors"], strict=True):
            if vector is not None:
                totals.text_vectors.setdefault(key, np.asarray(vector, np.float32))
    return totals


def _shares(part: pa.ListScalar) -> dict[str, Any]:
    """One batch's words as columns; `sums` holds those of the words that have a match, `[matched, D]`."""
    found = pa.Table.from_struct_array(part.values)
    matches = found["matches"].to_numpy()
    matched = int((matches > 0).sum())
    flat = found["sum"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    best = found["best"].fill_null(-np.inf).to_numpy()
    return {
        "keys": list(zip(found["lemma"].to_pylist(), found["pos"].to_pylist(), strict=True)),
        "images": found["images"].to_pylist(),
        "matches": matches,
        "best": np.asarray(best, np.float32),
        "sums": flat.reshape(matched, -1) if matched else np.zeros((0, 0), np.int64),
        "text_vectors": found["text_vector"].to_pylist(),
        "forms": found["forms"].to_pylist(),
    }
