"""Several results folders on one page: what is said of each, and tables that name the folder of every row."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale import analysis, strict_json
from ketscale.analysis import catalogue, claims
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report.chapter import Chapter
from ketscale.errors import UserError
from ketscale.files import read_text

if TYPE_CHECKING:
    import pandas as pd


def chapters(folders: Sequence[Path], page: Path) -> list[Chapter]:
    """The chapters of some results folders on a page in the folder `page`.

    Raises:
        UserError: there is but one folder, or one is given twice; a folder has no config of this version; or a
            run is missing, stale or refused.
    """
    if len(folders) < 2:
        raise UserError("merge needs two results folders or more; a single one has its report.html")
    found: list[Chapter] = []
    for number, (folder, name) in enumerate(zip(folders, _names(folders), strict=True), 1):
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
        seen = f"{Path(os.path.relpath(folder, page)).as_posix()}/"
        found.append(Chapter.of(Analysed.of(config, folder), name, seen, f"ketscale-{number}"))
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """The last parts of each folder's path, as many as it takes to tell them apart.

    Raises:
        UserError: two are the same folder, or have names that are equal on the page.
    """
    paths = [folder.resolve() for folder in folders]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"{folders[number]}: given twice")
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        # Filters and ids allow no spaces, and links no %.
        names = [re.sub(r"[^\w./+-]", "_", "/".join(path.parts[-parts:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"{', '.join(map(str, folders))}: have the same name on the page; rename a folder")


def title(chapters: Sequence[Chapter]) -> str:
    """The title that all folders have, or how many they are."""
    titles = {chapter.config.title for chapter in chapters}
    return titles.pop() if len(titles) == 1 else f"Results of {len(chapters)} folders"


def tables(chapters: Sequence[Chapter]) -> dict[str, pd.DataFrame]:
    """The tables of all chapters, one below the other; `results` is the key of each row's chapter."""
    names = chapters[0].tables
    joined = {
        name: _joined([chapter.tables[name].assign(results=chapter.key) for chapter in chapters])
        for name in names
    }
    return {**joined, "claims": _claims(joined["claims"])}


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables one below the other. Empty ones, whose columns have no type, are left out if others are not."""
    import pandas as pd

    return pd.concat([part for part in parts if len(part)] or parts[:1]).reset_index(drop=True)


def _claims(rows: pd.DataFrame) -> pd.DataFrame:
    """The verdicts of all folders, claim by claim in the ledger's order."""
    order = [claim.id for claim in claims.load()]
    return rows.sort_values("id", key=lambda ids: ids.map(order.index), kind="stable").reset_index(drop=True)
