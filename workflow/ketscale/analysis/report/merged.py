"""Several results folders on one page, each with its own answers, figures and rows."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ketscale import analysis, strict_json
from ketscale.analysis import catalogue
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report.page import rendered
from ketscale.errors import UserError
from ketscale.files import read_text, write_atomic


def merge(folders: Sequence[Path], out: Path) -> None:
    """Write one page of several results folders from their records; runs that are missing in a folder are named.

    Raises:
        UserError: there is but one folder, or one is given twice; a folder has no config of this version.
    """
    if len(folders) < 2:
        raise UserError("merge needs two results folders or more; a single one has its report.html")
    keys = _names(folders)
    seen = [f"{Path(os.path.relpath(folder, out.parent)).as_posix()}/" for folder in folders]
    write_atomic(out, rendered([_analysed(folder) for folder in folders], seen, keys))


def _analysed(folder: Path) -> Analysed:
    path = folder / catalogue.CONFIG_FILE
    try:
        given = strict_json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path}: no such file; run `ketscale report` with the config of {folder} first"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); run `ketscale report` again") from None
    try:
        config = analysis.of({**given, "partial": True}, placed=False)
    except UserError as error:
        raise UserError(f"{path}: {error}; run `ketscale report` again with this version") from None
    return Analysed.of(config, folder)


def _names(folders: Sequence[Path]) -> list[str]:
    """Each folder's path from the nearest folder that holds all of them.

    Raises:
        UserError: two are the same folder, or have names that are equal on the page.
    """
    paths = [folder.resolve() for folder in folders]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"{folders[number]}: given twice")
    whole = os.path.commonpath([path.parent for path in paths])
    # Ids allow no spaces, and links no %.
    names = [re.sub(r"[^\w./+-]", "_", str(path.relative_to(whole))) for path in paths]
    if len(set(names)) < len(names):
        raise UserError(f"{', '.join(map(str, folders))}: have the same name on the page; rename a folder")
    return names
