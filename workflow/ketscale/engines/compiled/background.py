"""Compiles in the background: a process does the work, so that the calls of this one are not slowed down."""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ketscale.engines.compiled import library
from ketscale.errors import UserError

_LOG = logging.getLogger("ketscale")
# An idle process is given up after this time.
_IDLE_S = 30.0


class _Background:
    """A thread that hands one piece of work after the other to a process; the last one asked for comes first."""

    def __init__(self) -> None:
        self._work: queue.LifoQueue[tuple[str, Callable[[], object], Callable[[], object]]] = (
            queue.LifoQueue()
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.broken = False
        atexit.register(self.stop)
        threading.Thread(target=self._run, name="ketscale-specialising", daemon=True).start()

    def put(self, what: str, work: Callable[[], object], done: Callable[[], object]) -> None:
        """Have `work`, which can be pickled, done in the process, and then `done` in this one."""
        self._work.put((what, work, done))

    def join(self) -> None:
        """Wait until all is done."""
        self._work.join()

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _run(self) -> None:
        while True:
            try:
                what, work, done = self._work.get(timeout=_IDLE_S if self._process else None)
            except queue.Empty:
                self.stop()
                continue
            began = time.perf_counter()
            try:
                library.keep(self._answer(work))
                done()
                _LOG.info("%s has code of its own, after %.1f s", what, time.perf_counter() - began)
            except Exception as error:
                if not self.broken:
                    self.broken = True
                    warnings.warn(
                        f"no circuit gets code of its own in the background ({error}): "
                        'ketscale.specialise("always") has it compiled at the first call',
                        stacklevel=1,
                    )
            finally:
                self._work.task_done()

    def _answer(self, work: Callable[[], object]) -> dict[str, bytes]:
        if self._process is None or self._process.poll() is not None:
            start = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer)"
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", f"{start}; from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A terminal's interrupt is not for it.
                start_new_session=True,
            )
            self._send(sys.path)
        self._send(work)
        assert self._process.stdout is not None
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        found: dict[str, bytes] = answer
        return found

    def _send(self, value: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(value))
        self._process.stdin.flush()


_background: list[_Background] = []
os.register_at_fork(after_in_child=_background.clear) if hasattr(os, "register_at_fork") else None


def later(what: str, work: Callable[[], object], done: Callable[[], object]) -> None:
    """Have `work`, which compiles something and can be pickled, done by another process, and `done` after it in this one."""
    if not _background:
        _background.append(_Background())
    if not _background[0].broken:
        _background[0].put(what, work, done)


def wait() -> None:
    """Wait until all circuits that were called again have code of their own."""
    for each in _background:
        each.join()


def serve() -> None:
    """Do the work that another process sends, and answer with the code that the cache folder did not take."""
    if hasattr(os, "nice"):
        os.nice(10)
    torch.set_num_threads(1)
    # What is printed must not get between the answers.
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            work = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: Any
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work()
            answer = library.taken()
        except Exception as error:
            answer = UserError(f"{type(error).__name__}: {error}")
        answers.write(pickle.dumps(answer))
        answers.flush()
