"""The benchmark of the engines: what it counts, what it says of a peak, and how it goes on where it was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from open_clip.transformer import ResidualAttentionBlock
from torch import nn

from benchmarks.gpu_engines import __main__ as command
from benchmarks.gpu_engines.diffusion import KLEIN_4B
from benchmarks.gpu_engines.meter import CHECK, Meter, Row, count_flops, peak_of
from benchmarks.gpu_engines.search import recall
from benchmarks.gpu_engines.table import cells, markdown
from benchmarks.gpu_engines.training import pair_set
from repair_ray.training.batches import BatchPlan

KEYS = {
    *("engine", "device", "dtype", "shapes", "items", "unit", "status", "reason", "versions", "note", "facts"),
    *("seconds", "per_second", "tflop", "tflops", "peak_tflops", "peak_source", "share_of_peak", "peak_memory_gb"),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_flops_of_a_linear_layer_by_hand() -> None:
    layer, inputs = nn.Linear(8, 16), torch.ones(4, 8)
    forward = 2 * 4 * 8 * 16
    assert count_flops(lambda: layer(inputs)) == forward
    # Backward: the weight's gradient alone, as the input wants none.
    assert count_flops(lambda: layer(inputs).sum().backward()) == 2 * forward


@pytest.mark.parametrize("training", [False, True])
def test_flops_of_a_transformer_block_by_hand(training: bool) -> None:
    """Also where the block would run as one fused kernel, of which the counter knows nothing."""
    batch, tokens, width = 2, 5, 32
    block = ResidualAttentionBlock(width, 4).train(training)
    inputs = torch.ones(batch, tokens, width)
    products = 2 * tokens * width * width * (3 + 1 + 4 + 4)  # queries, keys, values; output; up and down by 4
    attention = 2 * 2 * tokens * tokens * width
    with torch.inference_mode(not training):
        assert count_flops(lambda: block(inputs)) == batch * (products + attention)
    assert torch.backends.mha.get_fastpath_enabled(), "only the counted call goes without it"


def test_only_known_whole_devices_have_a_peak() -> None:
    assert peak_of("NVIDIA H200", "bf16")[0] == 989.5
    for device in ("cpu", "NVIDIA H200 MIG 1g.18gb"):
        peak, source = peak_of(device, "bf16")
        assert peak is None and device in source
    assert peak_of("NVIDIA H200", "fp32") == (None, "no peak is listed for fp32")


def test_time_rate_and_share_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # One second a call, and a device that does 4 TFLOP/s at most.
    clock = iter(range(100))
    monkeypatch.setattr("benchmarks.gpu_engines.meter.time.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr("benchmarks.gpu_engines.meter.PEAKS", {"cpu": 4.0})
    row = one_row(Meter("cpu"), lambda: None, items=6, flops=2 * 10**12)
    assert row["seconds"] == {"median": 1.0, "low": 1.0, "high": 1.0, "repeats": 10, "calls": 1}
    assert (row["per_second"], row["tflop"], row["tflops"], row["share_of_peak"]) == (6.0, 2.0, 2.0, 0.5)
    assert row["note"] is None and set(row) == KEYS


def test_out_of_memory_is_a_row_without_figures() -> None:
    def call() -> None:
        raise torch.OutOfMemoryError

    row = one_row(Meter("cpu"), call, items=6)
    assert (row["status"], row["reason"]) == ("error", "out of GPU memory at this size")
    assert row["seconds"] is row["per_second"] is row["tflops"] is row["share_of_peak"] is None
    assert cells(row)[3:] == ["out of GPU memory at this size", "-", "-", "-", "-", "-"]


def test_recall_by_hand() -> None:
    exact = torch.tensor([[1, 2], [3, 4]])
    assert recall(torch.tensor([[2, 9], [4, 3]]), exact) == 0.75


def test_a_batch_with_grids_encodes_three_of_each() -> None:
    batch = BatchPlan(pair_set(5, grids=True), 5, seed=0).step(0)
    assert (len(batch.images), len(batch.captions), batch.grid_images.shape) == (15, 15, (5, 3))
    assert (batch.grid_images >= 0).all() and (batch.grid_captions >= 0).all()
    assert len(BatchPlan(pair_set(5, grids=False), 5, seed=0).step(0).images) == 5


def test_a_quick_run_measures_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "check.json"
    command.main(device="cpu", quick=True, output=output, only="encoder,search,objective")
    record = json.loads(output.read_text())
    assert set(record["parts"]) == {"encoder", "search", "objective"} and record["note"] == CHECK
    for made in record["parts"].values():
        assert made["finished"] and made["rows"]
        for row in made["rows"]:
            assert set(row) == KEYS and (row["status"], row["device"], row["note"]) == ("ok", "cpu", CHECK)
            assert 0 < row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"]
            assert row["share_of_peak"] is None and row["versions"]["torch"] == torch.__version__
    assert record["parts"]["search"]["rows"][0]["facts"]["recall"] == 1.0
    assert CHECK in output.with_suffix(".md").read_text()

    def again(meter: Meter) -> Iterator[Row]:
        raise AssertionError("measured again")

    monkeypatch.setitem(command.PARTS, "encoder", again)
    command.main(device="cpu", quick=True, output=output, only="encoder")
    assert json.loads(output.read_text()) == record


def test_a_part_that_fails_keeps_its_rows_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "check.json"

    def fails(meter: Meter) -> Iterator[Row]:
        yield one_row(meter, lambda: None, items=1)
        raise RuntimeError("no luck")

    def works(meter: Meter) -> Iterator[Row]:
        yield one_row(meter, lambda: None, items=1)

    monkeypatch.setattr(command, "PARTS", {"first": fails, "second": works})
    with pytest.raises(typer.Exit) as stopped:
        command.main(device="cpu", quick=True, output=output)
    assert stopped.value.exit_code == 1 and "first: not finished: RuntimeError: no luck" in capsys.readouterr().err
    parts = json.loads(output.read_text())["parts"]
    assert [(made["finished"], len(made["rows"])) for made in parts.values()] == [(False, 1), (True, 1)]
    assert "first: not finished: RuntimeError: no luck" in output.with_suffix(".md").read_text()

    monkeypatch.setattr(command, "PARTS", {"first": works, "second": fails})
    command.main(device="cpu", quick=True, output=output)
    record = json.loads(output.read_text())
    assert all(made["finished"] for made in record["parts"].values())
    assert "not finished" not in markdown(record)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no CUDA device here; --device cpu --quick"),
        ({"quick": True}, "there is no CUDA device here"),
        ({"device": "cpu"}, "add --quick"),
        ({"device": "tpu"}, "--device tpu: give cuda or cpu"),
        (
            {"device": "cpu", "quick": True, "only": "encoder,nothing"},
            "--only nothing: no such part; there are encoder",
        ),
        ({"device": "cpu", "quick": True, "output": "other.json"}, "other.json holds figures of NVIDIA H200; give"),
        ({"device": "cpu", "quick": True, "output": "list.json"}, "list.json is no record of this benchmark"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    other = {"device": "NVIDIA H200", "note": None, "parts": {}}
    for name, held in (("other.json", other), ("list.json", [1, 2])):
        (tmp_path / name).write_text(json.dumps(held))
    if "output" in options:
        options = {**options, "output": tmp_path / options["output"]}
    with pytest.raises(typer.Exit) as stopped:
        command.main(**options)
    assert stopped.value.exit_code == 2 and message in capsys.readouterr().err
    assert json.loads((tmp_path / "other.json").read_text()) == other


@pytest.mark.diffusers
def test_the_full_denoiser_by_hand() -> None:
    """Of four thousand million parameters, as its name says; counted without memory or a GPU."""
    diffusers = pytest.importorskip("diffusers")
    width, side = 3072, 512 // 16
    tokens = 2 * side * side + 512
    with torch.device("meta"), torch.inference_mode():
        denoiser = diffusers.Flux2Transformer2DModel(**KLEIN_4B.denoiser).bfloat16()
        inputs = {
            "hidden_states": torch.zeros(1, 2 * side * side, 128, dtype=torch.bfloat16),
            "encoder_hidden_states": torch.zeros(1, 512, 7680, dtype=torch.bfloat16),
            "img_ids": torch.zeros(1, 2 * side * side, 4),
            "txt_ids": torch.zeros(1, 512, 4),
            "timestep": torch.ones(1, dtype=torch.bfloat16),
        }
        counted = count_flops(lambda: denoiser(**inputs))
    assert sum(weight.numel() for weight in denoiser.parameters()) == pytest.approx(4e9, rel=0.05)
    # 5 + 20 blocks: queries, keys, values and output; a gated layer of three times the width, up twice and down once.
    products = 25 * 2 * tokens * width * width * (4 + 3 * 3)
    attention = 25 * 2 * 2 * tokens * tokens * width
    assert counted == pytest.approx(products + attention, rel=0.01)


@pytest.mark.diffusers
def test_a_quick_run_of_the_diffusion_editor(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    output = tmp_path / "check.json"
    command.main(device="cpu", quick=True, output=output, only="diffusion")
    rows = json.loads(output.read_text())["parts"]["diffusion"]["rows"]
    assert [row["unit"] for row in rows] == ["images", "steps", "prompts"]
    assert all(set(row) == KEYS and row["status"] == "ok" for row in rows)
    edit, step, prompt = (row["tflop"] for row in rows)
    # Of 64x64 pixels, which the one-block VAE leaves as they are, in 2x2 patches: picture and source, and the prompt.
    assert rows[1]["shapes"]["tokens"] == 2 * 32 * 32 + 32
    assert edit > 4 * step + prompt, "four steps, the prompt and the VAE"


def one_row(meter: Meter, call: Any, *, items: int, flops: int | None = None) -> Row:
    return meter.row("x", call, items=items, unit="things", dtype="bf16", shapes={"batch": [2, 3]}, flops=flops)
