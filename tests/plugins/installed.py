"""Packages as pip would install them into a folder, made by hand: a module and its dist-info."""

from __future__ import annotations

import shutil
from pathlib import Path

ACME = Path(__file__).parent / "acme"
POINTS = {
    "repair_ray.editors": {"mirror": "acme_repair.editing:Mirror"},
    "repair_ray.judges": {"lenient": "acme_repair.judging:Lenient"},
    "repair_ray.strategies": {
        "prefixed": "acme_repair.writing:Prefixed",
        "shuffled": "acme_repair.writing:Shuffled",
    },
    "repair_ray.terms": {"spread": "acme_repair.spreading:Spread"},
}


def install(
    folder: Path, package: str, points: dict[str, dict[str, str]], *, version: str = "1.0", **modules: str
) -> None:
    """Write a package's entry points, and modules by their names."""
    for old in folder.glob(f"{package.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(old)
    place = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in named.items()) for group, named in points.items()]
    (place / "entry_points.txt").write_text("\n".join(lines))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def install_acme(folder: Path, version: str = "1.0") -> None:
    """Install the package beside this file."""
    install(folder, "acme-repair", POINTS, version=version)
    shutil.copytree(ACME / "acme_repair", folder / "acme_repair", dirs_exist_ok=True)
