"""The figure of scaling of README and gallery, from records: `python -m docs._generate.scaling [RESULTS]`.

With a results folder, its break-even study's records and histories are packed into docs/measurements first.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from docs._generate.measured import DOCS

from ketscale import analysis
from ketscale.analysis import figures
from ketscale.analysis.analysed import CONFIG_FILE, Analysed

STUDY = "break-even"
PACKED = DOCS / "measurements" / "2026-11-scaling.tar.xz"
PICTURE = DOCS / "images" / "scaling.svg"


def pack(results: Path) -> None:
    """Keep the config with this study alone, and the records of its runs with their histories."""
    config = json.loads((results / CONFIG_FILE).read_text())
    config |= {"studies": {STUDY: config["studies"][STUDY]}, "partial": True}
    runs = analysis.of(config, placed=False).runs
    files = {CONFIG_FILE: json.dumps(config, sort_keys=True).encode()}
    for run in runs:
        for path in (results / run.folder).glob("*"):
            if path.name in ("metrics.json", "history.csv"):
                files[f"{run.folder}/{path.name}"] = path.read_bytes()
    with tarfile.open(PACKED, "w:xz") as packed:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def picture() -> bytes:
    """The figure that the packed records give."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
        config = analysis.of(json.loads((Path(folder) / CONFIG_FILE).read_text()), placed=False)
        return figures.drawings(Analysed.of(config, Path(folder)))[STUDY]["svg"]


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        pack(Path(folder))
    PICTURE.write_bytes(picture())
