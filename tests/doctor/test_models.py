"""Retrievers, folders and hub names of models, and the memory that their weights take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
from safetensors.numpy import save_file

from repair_ray.config import Config, parse_config
from repair_ray.doctor.cluster import Node
from repair_ray.doctor.memory import Load, check_memory, fits, pipeline_bytes
from repair_ray.doctor.models import Place, check_retriever, find_models, locate, parameters
from repair_ray.engines.encoder import build_model
from repair_ray.engines.retriever import RetrieverSpec

GIB = 2**30


def config(**sections: Any) -> Config:
    return parse_config({"data": {"world": {}}, "retriever": {"model": "tiny-64"}, **sections})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds `org/here`."""
    revision = tmp_path / "models--org--here" / "snapshots" / "abc"
    revision.mkdir(parents=True)
    (revision / "config.json").write_text("{}")
    (tmp_path / "models--org--here" / "refs").mkdir()
    (tmp_path / "models--org--here" / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("retriever", "base", "expected"),
    [
        ({"model": "ViT-Z-99"}, {}, "unknown retriever.model 'ViT-Z-99'"),
        ({"pretrained": "no/weights.pt"}, None, "no checkpoint at no/weights.pt"),
        ({"pretrained": "no-such-tag"}, None, "no file, and no tag of tiny-64; its tags: none"),
        ({"model": "ViT-B-32", "pretrained": "openai"}, None, "set retriever.model=ViT-B-32-quickgelu"),
        ({}, None, "retriever.pretrained is unset"),
    ],
)
def test_retrievers_that_cannot_be_had(retriever: dict[str, Any], base: Any, expected: str) -> None:
    finding = check_retriever(config(retriever={"model": "tiny-64", **retriever}, base=base))
    assert finding.state == "failed" and expected in finding.found


def test_weights_of_a_tag_that_are_not_here(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = config(retriever={"model": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"})
    finding = check_retriever(tagged)
    assert finding.state == "warning" and "laion/CLIP-ViT-B-32-laion2B-s34B-b79K: not in" in finding.found
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert check_retriever(tagged).state == "failed"
    assert check_retriever(config(base={"steps": 1})).state == "ok"


def test_parameters_are_counted_without_building() -> None:
    whole = sum(value.numel() for value in build_model(RetrieverSpec("tiny-64")).parameters())
    assert parameters(config()) == whole
    # OpenAI's CLIP, as published.
    assert parameters(config(retriever={"model": "ViT-B-32"})) == 151_277_313
    assert parameters(config(retriever={"model": "hf-hub:org/name"})) is None


@pytest.mark.parametrize(
    ("name", "offline", "state", "found"),
    [
        ("org/here", True, "ok", "in the hub's cache"),
        ("org/other", False, "warning", "the stage that needs it downloads it"),
        ("org/other", True, "failed", "HF_HUB_OFFLINE is set"),
        ("/nowhere/model", False, "failed", "no such folder, and no hub name"),
    ],
)
def test_hub_names(
    hub: Path, monkeypatch: pytest.MonkeyPatch, name: str, offline: bool, state: str, found: str
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    finding, folder = locate("language.model", name, "config.json")
    assert finding.state == state and name in finding.found and found in finding.found
    assert (folder is not None) == (state == "ok")


def test_folders(tmp_path: Path) -> None:
    finding, folder = locate("language.model", str(tmp_path), "config.json")
    assert finding.state == "failed" and "there is no config.json in that folder" in finding.found and folder is None
    (tmp_path / "config.json").write_text("{}")
    finding, folder = locate("language.model", str(tmp_path), "config.json")
    assert (finding.state, folder) == ("ok", tmp_path)


def test_models_of_a_run(tmp_path: Path) -> None:
    vllm = {"backend": "vllm", "model": str(tmp_path / "judge")}
    edits = {"language": {"backend": "openai", "model": "m"}, "image_editor": "flux2-klein"}
    findings, places = find_models(config(language=vllm, edit=edits))
    assert [place.key for place in places] == ["language.model", "edit.diffusion.model"]
    assert findings[0].state == "failed"
    # The editor's own model, where the config names none.
    assert places[1].name == "black-forest-labs/FLUX.2-klein-4B"
    # A picture is edited for t2i alone.
    _, places = find_models(config(edit=edits, mining={"directions": ["i2t"]}))
    assert places == []


def tensors(path: Path, *sizes: int, dtype: Any = np.float32) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({f"w{i}": np.zeros((size,), dtype) for i, size in enumerate(sizes)}, path)


def pipeline(folder: Path) -> Path:
    """A transformer of 1,000 values in two files, a VAE of 50; a second variant, a single file, and a part that is
    not used.
    """
    parts = {"_class_name": "X", "transformer": ["d", "T"], "vae": ["d", "V"], "safety": None}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_index.json").write_text(json.dumps(parts))
    tensors(folder / "transformer" / "model-00001-of-00002.safetensors", 400, 200)
    tensors(folder / "transformer" / "model-00002-of-00002.safetensors", 400)
    tensors(folder / "transformer" / "model.fp16.safetensors", 1000, dtype=np.float16)
    tensors(folder / "vae" / "model.safetensors", 50)
    tensors(folder / "safety" / "model.safetensors", 7000)
    tensors(folder / "whole.safetensors", 9000)
    return folder


def test_what_a_pipeline_takes_once_loaded(tmp_path: Path) -> None:
    assert pipeline_bytes(pipeline(tmp_path), 2) == 2 * 1050


def node(memory: float, *gpus: float) -> Node:
    return Node("a", 8, len(gpus), memory * GIB, tuple(int(size * GIB) for size in gpus))


@pytest.mark.parametrize(
    ("size", "copies", "share", "nodes", "state"),
    [
        (10, 1, 1.0, [node(64, 24)], "ok"),
        (20, 1, 1.0, [node(64, 24)], "warning"),  # above four fifths
        (25, 1, 1.0, [node(64, 24)], "failed"),
        (10, 1, 0.25, [node(64, 24)], "failed"),  # a quarter of a GPU has 6
        (10, 1, 1.0, [node(64, 80), node(64, 8)], "warning"),  # an actor may come to the smaller one
        (10, 1, 2.0, [node(64, 24, 24)], "ok"),
        (10, 3, 0.0, [node(64)], "ok"),
        (10, 7, 0.0, [node(64)], "failed"),
        (40, 2, 0.0, [node(64), node(64)], "ok"),
        (70, 1, 0.0, [node(64), node(64)], "failed"),  # a copy lies on one node
        (10, 1, 1.0, [node(64)], "skipped"),
        (10, 1, 0.0, [], "skipped"),
    ],
)
def test_weights_against_memory(size: float, copies: int, share: float, nodes: list[Node], state: str) -> None:
    finding = fits(Load("model", int(size * GIB), copies, share), nodes)
    assert finding.state == state
    assert f"model: {size:.1f} GiB (weights alone)" in finding.found


def test_memory_of_each_model(tmp_path: Path) -> None:
    judge = tmp_path / "judge"
    tensors(judge / "model.safetensors", 12 * 2**20)
    language = {
        "backend": "vllm",
        "model": str(judge),
        "engine": {"arguments": {"tensor_parallel_size": 2}},
        "pool": {"num_gpus": 2},
    }
    edit = {"image_editor": "flux2", "diffusion": {"model": str(pipeline(tmp_path / "p"))}, "pool": {"num_gpus": 1}}
    made = config(language=language, edit=edit, training={"workers": 4, "use_gpu": True, "batch_size": 4})
    places = [
        Place("language.model", str(judge), judge),
        Place("edit.diffusion.model", str(tmp_path / "p"), tmp_path / "p"),
        Place("audit.language.model", "org/other", None),
    ]
    found = check_memory(made, [node(64, 24)], places, 10 * 2**20)
    assert [finding.state for finding in found] == ["ok", "ok", "ok", "ok", "skipped"]
    # 10 Mi parameters: 4 bytes each, in training 16; the judge's 48 MiB on two GPUs.
    for finding, size in zip(found, ("40 MiB", "0.2 GiB", "24 MiB", "0 MiB"), strict=False):
        assert size in finding.found
    assert "unknown until it is downloaded" in found[4].found
