"""One writer per run: a lease in the run's folder, without file locks and without comparing clocks of hosts.

The lease is `FOLDER/lease/<n>.json`; the highest generation n is valid. A process that finds it stale creates n + 1
with O_EXCL, which only one process can do. The highest file is never deleted, so no older one can become valid again:
a process that takes over deletes the lower files, and one that releases the lease leaves its file as a tombstone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ketscale import process, strict_json
from ketscale.errors import UserError
from ketscale.files import read_bytes
from ketscale.jobs.ownership.signs import Holder, in_words, is_alive, parse, utc

# The file of a generation.
_NAME = re.compile(r"([1-9][0-9]*)\.json")
# One look counts for at most this share of the patience (see `_unchanged`).
_LONGEST_LOOK = 1 / 3
# A holder may miss at least this many beats, whatever the patience.
_BEATS = 3


class LeaseContent(Holder, frozen=True):
    """The content of a lease's file."""

    token: str
    beat: int
    released: bool
    finished: bool


class Lease:
    """The right to write into the folder of a run, kept by a heartbeat.

    `holder` says in words who held the lease at the last look. `former` is the content of the lease before this one
    ({}: it could not be read; None: there was none, or its holder had finished the run). `lost` is set once another
    process has taken over. The holder sets `finished` when it has finished the run.
    """

    def __init__(
        self,
        folder: Path,
        interval_s: float = 10.0,
        patience_s: float = 60.0,
        job_over: Callable[[str], bool | None] = lambda job: None,
    ) -> None:
        """Do not take the lease yet.

        `job_over` says whether all processes of a SLURM job of this cluster have ended (None: unknown); it is asked
        at most once per interval.
        """
        self.folder = folder
        self.interval_s = interval_s
        self.patience_s = patience_s
        self.holder = "nobody"
        self.former: Mapping[str, Any] | None = None
        self.lost = False
        self.finished = False
        self._job_over = job_over
        self._asked: float | None = None
        self._me = process.identity() | {"interval_s": interval_s}
        self._seen: tuple[int, bytes] | None = None
        self._looked = 0.0
        self._unchanged_s = 0.0
        self._generation = 0  # 0: not acquired
        self._beat = 0
        self._stop = threading.Event()
        self._thread = threading.Thread()

    def try_acquire(self) -> bool:
        """Try once, without waiting; whether this object holds the lease (once lost: False until `release`).

        Raises:
            OSError: the folder cannot be listed or written; then the lease is not held.
        """
        if self._generation:
            return not self.lost
        top = max(_generations(self.folder), default=0)
        if top and not self._is_free(top):
            return False
        return self._create(top + 1)

    def check(self) -> None:
        """Raise an error unless the lease is held; call it right before a write.

        Raises:
            UserError: another process has taken over, or the lease was deleted.
            OSError: the lease cannot be read; a write into the folder would probably fail too.
        """
        if not self._generation and not self.lost:
            raise RuntimeError(f"{self.folder}: check of a lease that was not acquired")
        if not self.lost and not self._is_owned():
            self.lost = True
        if self.lost:
            self._stop.set()
            now = read(self.folder)
            reason = (
                "the lease of this run was deleted"
                if now is None
                else f"another process has taken over this run ({in_words(now)})"
            )
            raise UserError(f"{self.folder}: {reason}; this process stops and writes nothing")

    def release(self) -> None:
        """Stop the heartbeat and, if the lease is still held, leave a tombstone. A second call does nothing."""
        if not self._generation:
            return
        self._stop.set()
        self._thread.join()
        # Without a tombstone, others find the lease stale later, as after a crash.
        with contextlib.suppress(OSError):
            if not self.lost and self._is_owned():
                self._write(released=True)
        self._generation = 0

    def _is_free(self, generation: int) -> bool:
        try:
            raw = read_bytes(_path(self.folder, generation))
        except OSError as error:
            # The next holder has just deleted it, or it is not readable: neither means that its holder is dead.
            self.holder = f"a process whose lease cannot be read ({error.strerror})"
            self._seen = None
            return False
        content = parse(raw, LeaseContent)
        self.holder = _who(content)
        verdict = self._verdict(content)
        return self._unchanged(generation, raw, content) if verdict is None else verdict

    def _verdict(self, content: Mapping[str, Any]) -> bool | None:
        """Whether the lease is free, if that can be told at once; else None."""
        if not content:
            return None
        if content["released"]:
            return True
        alive = is_alive(content)
        if alive is not None:
            # Alive means held, however long ago the last beat was: the process may be stopped in a debugger.
            return not alive
        # The cluster counts too: two clusters on one file system may use the same job ids.
        if content["job"] is not None and content["cluster"] == self._me["cluster"]:
            if content["job"] == self._me["job"]:
                # If SLURM has requeued this job, the holder was in an earlier start of it and is gone.
                return True if content["restarts"] < self._me["restarts"] else None
            if self._ask(content["job"]):
                return True
        return None

    def _ask(self, job: str) -> bool:
        now = time.monotonic()
        if self._asked is not None and now - self._asked < self.interval_s:
            return False
        self._asked = now
        return self._job_over(job) is True

    def _unchanged(self, generation: int, raw: bytes, content: Mapping[str, Any]) -> bool:
        """Whether the file has not changed for the length of the patience, by the clock of this process alone."""
        now = time.monotonic()
        if self._seen != (generation, raw):
            self._seen = (generation, raw)
            self._unchanged_s = 0.0
        else:
            # The time is capped: if this process was frozen or the file system hung, the holder may have been unable to write
            # too.
            self._unchanged_s += min(now - self._looked, self.patience_s * _LONGEST_LOOK)
        self._looked = now
        return self._unchanged_s >= max(self.patience_s, _BEATS * content.get("interval_s", 0.0))

    def _create(self, generation: int) -> bool:
        path = _path(self.folder, generation)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return False
        self._me |= {"token": secrets.token_hex(16), "since": utc()}
        self._generation, self._beat = generation, 0
        try:
            self._write()
            # Since this process looked, others may have taken and released this generation and deleted its file.
            # Then there is a higher one, and this file is void.
            owned = self._is_owned()
            self.former = self._predecessor()
        except OSError:
            self._withdraw()
            raise
        if not owned:
            self._withdraw()
            return False
        self.lost = False
        self._delete_lower()
        self.holder = _who(self._content())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()
        return True

    def _withdraw(self) -> None:
        # The lease was not held yet, so all lower generations still exist, and the highest of them is valid again.
        with contextlib.suppress(OSError):
            _path(self.folder, self._generation).unlink()
        self._generation = 0

    def _predecessor(self) -> Mapping[str, Any] | None:
        """The lease before this one. An empty file is skipped: its writer wanted to follow the one below."""
        lower = sorted(n for n in _generations(self.folder) if n < self._generation)
        for generation in reversed(lower):
            try:
                content = parse(read_bytes(_path(self.folder, generation)), LeaseContent)
            except OSError:
                continue
            if content:
                return None if content["finished"] else content
        return {} if lower else None

    def _delete_lower(self) -> None:
        with contextlib.suppress(OSError):  # a file that remains is harmless, since a higher one exists
            for generation in _generations(self.folder):
                if generation < self._generation:
                    _path(self.folder, generation).unlink(missing_ok=True)

    def _keep(self) -> None:
        while not self._stop.wait(self.interval_s):
            # The disk may be full or a file handle stale, but the next beat may succeed. If none does, another
            # process takes over, and `check` notices.
            with contextlib.suppress(OSError):
                if not self._is_owned():
                    self.lost = True
                    return
                self._beat += 1
                self._write()

    def _is_owned(self) -> bool:
        # Check both: NFS may show an old listing for a while, but it opens no deleted file.
        try:
            content = parse(read_bytes(_path(self.folder, self._generation)), LeaseContent)
        except FileNotFoundError:
            return False
        newest = max(_generations(self.folder), default=0)
        return content.get("token") == self._me["token"] and newest <= self._generation

    def _content(self, released: bool = False) -> dict[str, Any]:
        state = {"beat": self._beat, "at": utc(), "released": released, "finished": self.finished}
        return self._me | state

    def _write(self, released: bool = False) -> None:
        strict_json.write(_path(self.folder, self._generation), self._content(released))


def read(folder: Path) -> dict[str, Any] | None:
    """The content of the lease on `folder`: None if there is none, {} if it cannot be read."""
    for _ in range(3):
        try:
            generations = _generations(folder)
            if not generations:
                return None
            return parse(read_bytes(_path(folder, max(generations))), LeaseContent)
        except FileNotFoundError:  # another process took over between the two lines above
            continue
        except OSError:
            break
    return {}


def _who(content: Mapping[str, Any]) -> str:
    return "nobody" if content.get("released") else in_words(content)


def _path(folder: Path, generation: int) -> Path:
    return folder / "lease" / f"{generation}.json"


def _generations(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder / "lease")
    except FileNotFoundError:
        return []
    return [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]
