"""Diffusion editors on real pipelines of tiny random parts: what they make is noise, made the same way each time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from repair_ray.config import DataConfig, DiffusionConfig, LanguageConfig
from repair_ray.data.images import load_rgb
from repair_ray.engines.editors import EditError
from repair_ray.engines.provenance import SOURCE_TYPE
from repair_ray.stages.candidates import DRAFTS, MakeCandidates

diffusion = pytest.importorskip("repair_ray.engines.diffusion", reason="diffusers is not installed")
from tests.fixtures import tiny_models  # noqa: E402

pytestmark = pytest.mark.diffusers

SETTINGS: dict[str, dict[str, Any]] = {
    "flux2-klein": {
        "steps": 2,
        "arguments": {"text_encoder_out_layers": (1,), "max_sequence_length": 32},
    },
    "flux-kontext": {
        "steps": 2,
        "arguments": {"_auto_resize": False, "max_area": 64 * 64, "max_sequence_length": 32},
    },
}
BUILDERS: dict[str, Callable[[Path], Path]] = {
    "flux2-klein": tiny_models.flux2_klein,
    "flux-kontext": tiny_models.flux_kontext,
}


def png(width: int = 64, height: int = 64, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.fixture(scope="module", params=list(BUILDERS))
def editor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = BUILDERS[request.param](tmp_path_factory.mktemp("pipeline") / request.param)
    config = DiffusionConfig(model=str(folder), dtype="fp32", **SETTINGS[request.param])
    return diffusion.DiffusersEditor(request.param, config, load_rgb)


@pytest.fixture(scope="module")
def klein(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_models.flux2_klein(tmp_path_factory.mktemp("klein") / "pipeline")
    config = DiffusionConfig(model=str(folder), dtype="fp32", **SETTINGS["flux2-klein"])
    return diffusion.DiffusersEditor("flux2-klein", config, load_rgb)


def test_a_seed_means_a_picture_whatever_came_before(editor: Any) -> None:
    jobs = [(png(seed=n), f"make it {n}", n) for n in range(3)]
    forward = [editor.edit(*job) for job in jobs]
    backward = [editor.edit(*job) for job in reversed(jobs)][::-1]
    assert forward == backward
    assert len(set(forward)) == 3
    image, instruction, seed = jobs[0]
    assert editor.edit(image, instruction, seed + 1) != forward[0]
    assert editor.edit(png(seed=9), instruction, seed) != forward[0], "the source picture counts"


@pytest.mark.parametrize("size", [(64, 64), (96, 64), (64, 160), (70, 50), (8, 8)])
def test_the_size_of_the_source_comes_back(editor: Any, size: tuple[int, int]) -> None:
    edited = pixels(editor.edit(png(*size), "turn it blue", 1))
    assert edited.shape == (size[1], size[0], 3) and edited.std() > 1


def test_a_large_picture_is_edited_small(klein: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Image.Image] = []
    _fake(klein, monkeypatch, lambda image: shown.append(image) or np.asarray(image, np.float32)[..., ::-1] / 255)
    monkeypatch.setattr(klein, "_config", DiffusionConfig(model="x", max_px=128))
    assert pixels(klein.edit(png(512, 256), "x", 0)).shape == (256, 512, 3)
    assert shown[0].size == (128, 64)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            lambda image: np.zeros((64, 64, 3)),
            "the edited picture is black; if many edits end so, set edit.diffusion.dtype=fp32",
        ),
        (
            lambda image: np.full((64, 64, 3), 0.01),
            "the edited picture is black; if many edits end so, set edit.diffusion.dtype=fp32",
        ),
        (
            lambda image: np.full((64, 64, 3), np.nan),
            "pixels that are not finite; if many edits end so, set edit.diffusion.dtype=fp32",
        ),
        (
            lambda image: np.full((64, 64, 3), np.inf),
            "pixels that are not finite; if many edits end so, set edit.diffusion.dtype=fp32",
        ),
        (lambda image: np.asarray(image, np.float32) / 255, "the edited picture does not differ from its source"),
    ],
)
def test_what_is_no_edit_is_refused(
    klein: Any, monkeypatch: pytest.MonkeyPatch, made: Callable[[Any], Any], reason: str
) -> None:
    _fake(klein, monkeypatch, made)
    with pytest.raises(EditError, match=reason):
        klein.edit(png(), "x", 0)


def test_a_ribbon_is_refused(klein: Any) -> None:
    with pytest.raises(EditError, match="source picture is more than 8 times as long as wide; crop it"):
        klein.edit(png(9, 80), "x", 0)


def test_a_source_that_is_no_picture(klein: Any) -> None:
    with pytest.raises(EditError, match=r"the source picture cannot be read: not_an_image$"):
        klein.edit(b"no picture at all", "x", 0)


@pytest.fixture
def of_a_run(tmp_path: Path) -> Callable[..., Any]:
    """The editor as the edit stage makes it, for a run with such data settings."""

    def make(**data: Any) -> Any:
        folder = tiny_models.flux2_klein(tmp_path / "pipeline")
        config = DiffusionConfig(model=str(folder), dtype="fp32", **SETTINGS["flux2-klein"])
        arguments = {
            "folder": str(tmp_path),
            "data": DataConfig.model_validate({"path": "unused.parquet", **data}).model_dump(mode="json"),
            "language": LanguageConfig().model_dump(mode="json"),
            "editor": "flux2-klein",
            "editor_settings": {},
            "diffusion": config.model_dump(mode="json"),
            "device": "cpu",
            "candidates": 1,
            "seed": 0,
            "product": "edits",
        }
        stage = MakeCandidates(
            id_column="failure_id", schema=DRAFTS, markers=str(tmp_path / "markers"), poison={}, arguments=arguments
        )
        return stage._editor

    return make


def test_a_source_is_seen_on_the_runs_background(of_a_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[np.ndarray] = []
    editor = of_a_run(background=[0, 128, 255])
    _fake(editor, monkeypatch, lambda image: shown.append(np.asarray(image)) or np.full((64, 64, 3), 0.5))
    picture = Image.new("RGBA", (64, 64), (200, 100, 50, 255))
    picture.paste((9, 9, 9, 0), (0, 0, 64, 32))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    editor.edit(buffer.getvalue(), "x", 0)
    assert (shown[0][:32] == (0, 128, 255)).all() and (shown[0][32:] == (200, 100, 50)).all()


def test_a_source_over_the_runs_limits_is_refused(of_a_run: Callable[..., Any]) -> None:
    editor = of_a_run(max_pixels=64 * 64, max_image_mb=1)
    assert editor.edit(png(64, 64), "x", 0)
    with pytest.raises(EditError, match=r"cannot be read: bomb; data\.max_pixels and data\.max_image_mb set the"):
        editor.edit(png(64, 65), "x", 0)
    with pytest.raises(EditError, match=r"cannot be read: too_large; data\.max_pixels"):
        editor.edit(png(64, 64) + bytes(2**20), "x", 0)


def refuse(picture: Image.Image) -> str | None:
    return "too square" if picture.width == picture.height else None


def test_the_safety_hook_may_refuse(klein: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klein, "_safety", diffusion._hook("tests.engines.test_diffusion:refuse"))
    with pytest.raises(EditError, match=r"edit\.diffusion\.safety refused the edited picture: too square"):
        klein.edit(png(64, 64), "x", 0)
    assert klein.edit(png(96, 64), "x", 0)
    with pytest.raises(ValueError, match=r"edit\.diffusion\.safety=no\.such:thing"):
        diffusion._hook("no.such:thing")


def test_the_pipelines_own_checker_may_refuse(klein: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(klein, monkeypatch, lambda image: np.ones((64, 64, 3)), nsfw=[True])
    with pytest.raises(EditError, match="the pipeline's safety checker refused the edited picture"):
        klein.edit(png(), "x", 0)


def test_the_picture_says_that_it_is_synthetic(klein: Any) -> None:
    edited = Image.open(io.BytesIO(klein.edit(png(), 'make "it" <red> & \x00 round\n', 7)))
    assert edited.format == "JPEG"
    assert str(edited.getexif()[0x0131]).startswith("repair_ray ")
    xmp = edited.info["xmp"].decode()
    assert SOURCE_TYPE in xmp and "seed 7: make" in xmp
    from xml.etree import ElementTree

    body = xmp[xmp.index("<x:xmpmeta") : xmp.index("<?xpacket end")]
    (description,) = ElementTree.fromstring(body).iter("{http://www.w3.org/1999/02/22-rdf-syntax-ns#}Description")
    prompt = description.attrib["{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}AIPromptInformation"]
    assert prompt.startswith('seed 7: make "it" <red> &')


def test_weights_that_are_not_there_name_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"edit\.diffusion\.model=.*no Flux2KleinPipeline there"):
        diffusion.DiffusersEditor("flux2-klein", DiffusionConfig(model=str(tmp_path)), load_rgb)


def _fake(editor: Any, monkeypatch: pytest.MonkeyPatch, made: Callable[[Any], Any], nsfw: Any = None) -> None:
    """A pipeline that misbehaves on demand, in the place of one that cannot be made to."""

    def pipeline(image: Image.Image, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(images=[np.asarray(made(image), np.float32)], nsfw_content_detected=nsfw)

    monkeypatch.setattr(editor, "_pipeline", pipeline)
