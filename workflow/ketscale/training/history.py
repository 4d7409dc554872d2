"""The history of a run: one row for each epoch, appended to a CSV file, so that long runs neither keep nor rewrite it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.errors import UserError
from ketscale.files import copy_atomic, csv_of, naming, write_atomic

# People who watch a run see its rows at most this much later: an epoch may be one small step.
_REFRESH_S = 2.0
_NO_ROWS = b"epoch,step\n"
_PART = 1 << 20


class History:
    """The rows of a run in a file of its own. A checkpoint has the file's length and digest; a resumption cuts it there.

    Args:
        path: the file, replaced when the first rows come; None on ranks that write none, which only count.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._columns: list[str] = []
        self._digest = hashlib.sha256()
        self._rows = 0
        # The bytes in the file, and those that wait to be written.
        self._bytes, self._waiting = 0, bytearray()
        self._last_write_s = time.monotonic()

    def __len__(self) -> int:
        return self._rows

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; None becomes an empty cell.

        Raises:
            ValueError: it has a column that the first row has not.
            OSError: rows cannot be written; names the file.
        """
        if self._path is not None:
            self._columns = self._columns or list(row)
            header, _, line = csv_of([row], self._columns).partition(b"\n")
            self._waiting += line if self._rows else header + b"\n" + line
            if time.monotonic() - self._last_write_s >= _REFRESH_S:
                self._write()
        self._rows += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint has of it; the rows are on disk then."""
        assert self._path is not None, "only the rank that writes the history writes checkpoints"
        self._write()
        return {
            "file": self._path.name,
            "columns": self._columns,
            "rows": self._rows,
            "bytes": self._bytes,
            "sha256": self._digest.hexdigest(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the rows of a checkpoint; later ones are cut off when the next are written.

        Raises:
            UserError: the file is missing, or does not begin with these rows.
        """
        self._rows, self._columns = state["rows"], state["columns"]
        if self._path is None or not self._rows:
            return
        self._path = self._path.with_name(state["file"])
        try:
            with self._path.open("rb") as file:
                while part := file.read(min(state["bytes"] - self._bytes, _PART)):
                    self._digest.update(part)
                    self._bytes += len(part)
        except FileNotFoundError:
            raise UserError(f"{self._path}: is missing") from None
        if self._digest.hexdigest() != state["sha256"]:
            raise UserError(f"{self._path}: is damaged, or of another training")

    def finish(self, path: Path) -> str:
        """Write the history to `path`, atomically (only a header if there is no row); returns its SHA-256."""
        if self._path is None or not self._rows:
            write_atomic(path, _NO_ROWS)
            return hashlib.sha256(_NO_ROWS).hexdigest()
        self._write()
        copy_atomic(self._path, path)
        return self._digest.hexdigest()

    def _write(self) -> None:
        """Write what waits after the bytes that count, and nothing else behind them."""
        assert self._path is not None
        self._last_write_s = time.monotonic()
        if not self._rows:
            return
        if not self._bytes:
            write_atomic(self._path, bytes(self._waiting))
        else:
            with naming(self._path), self._path.open("r+b") as file:
                file.seek(self._bytes)
                file.write(self._waiting)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        self._digest.update(self._waiting)
        self._bytes += len(self._waiting)
        self._waiting.clear()
