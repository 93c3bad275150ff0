"""From a made world to a report, in Python: `python examples/python_api.py [FOLDER]`. Minutes on two cores, no GPU.

The sizes are those of a trial; its figures mean nothing. `repair-ray demo` has the real ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import repair_ray
from repair_ray import api

SETTINGS = """
name: example
data: {world: {train: 80, validation: 30, test: 40}}
retriever: {model: tiny-64}
base: {steps: 12, batch_size: 64, lr: 1.0e-3}
mining: {budget: 100}
language: {max_changes: 9}
edit: {image_editor: scene}
selection: {min_gain: -1.0}
objective: {placement: dispersed}
training: {steps: 12, batch_size: 16, lr: 1.0e-3}
controls: none
"""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "example.yaml").write_text(SETTINGS)
    config = repair_ray.Config.load(folder / "example.yaml", f"output={folder / 'runs'}")

    summary = api.run(config, progress=lambda product, done, total: print(f"\r{product}: {done} of {total}", end=""))
    before, after = (record["metrics"]["i2t"]["r@1"] for record in (summary["base"], summary["rounds"][0]))
    print(f"\nR@1 of images: {before:.1f} before, {after:.1f} after repair")

    state = api.status(config.run_dir)
    print(f"{state['state']}: {', '.join(product['name'] for product in state['products'])}")
    facts = api.evaluate(config.run_dir, split="validation")
    print(f"on validation: {', '.join(facts['retrievers'])}")
    hits = api.search(config.run_dir, "a small red circle", k=3)
    print(f"searched in {hits['split']}")
    pairs = api.export_pairs(config.run_dir, folder / "pairs", "jsonl", overwrite=True)
    print(f"exported: {pairs['written']}")
    print(f"report: {api.report(config.run_dir)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("example"))
