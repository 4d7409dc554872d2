"""Compiles in the background: a process does the work, so that the calls of this one are not slowed down."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled import library
from ketscale.errors import UserError

_LOG = logging.getLogger("ketscale")
# An idle process is given up after this time.
_IDLE_S = 30.0
# In a search over circuits those that were asked for long ago are not called any more.
MOST_WAITING = 16


class _Work(NamedTuple):
    """What is to be compiled, in words; the function that does it, which can be pickled; and what follows here.

    dropped: is called instead, if so much else was asked for later that this is not done, and in a forked process.
    """

    what: str
    do: Callable[[], object]
    done: Callable[[], object]
    dropped: Callable[[], object]


class _Background:
    """A thread that hands one piece of work after the other to a process; the last one asked for comes first."""

    def __init__(self) -> None:
        self._waiting: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._doing: list[_Work] = []
        self._process: subprocess.Popen[bytes] | None = None
        # No process is started once this one ends.
        self._starting = threading.Lock()
        self._owner = os.getpid()
        self.ended = False
        atexit.register(self._end)
        threading.Thread(target=self._run, name="ketscale-compiling", daemon=True).start()

    def put(self, work: _Work) -> None:
        """Have it done."""
        with self._changed:
            self._waiting.append(work)
            dropped = self._waiting.popleft() if len(self._waiting) > MOST_WAITING else None
            self._changed.notify_all()
        if dropped is not None:
            dropped.dropped()

    def join(self) -> None:
        """Wait until all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or not (self._waiting or self._doing))

    def drop(self) -> None:
        """Have nothing done that is not: in a forked process, which has not the thread."""
        for work in (*self._waiting, *self._doing):
            work.dropped()

    def _end(self) -> None:
        # A forked process has the same functions to call at its end, but not the thread.
        if os.getpid() == self._owner:
            with self._starting:
                self.ended = True
            self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what could not be sent any more
                    pipe.close()  # type: ignore[union-attr]

    def _run(self) -> None:
        while not self.ended:
            with self._changed:
                self._doing.clear()
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: bool(self._waiting), _IDLE_S):
                    self._stop()
                    continue
                work = self._waiting.pop()
                self._doing.append(work)
            began = time.perf_counter()
            try:
                library.keep(self._answer(work.do))
                work.done()
                _LOG.info("%s has code of its own, after %.1f s", work.what, time.perf_counter() - began)
            except Exception as error:
                # At the end of this process the other one is killed.
                if not self.ended:
                    self.ended = True
                    self._stop()
                    warnings.warn(
                        f"no circuit gets code of its own in the background ({error}): "
                        'ketscale.specialise("always") has it compiled at the first call',
                        stacklevel=1,
                    )
        with self._changed:
            self._changed.notify_all()

    def _answer(self, do: Callable[[], object]) -> dict[str, bytes]:
        """The code that the cache folder did not take, by the names of its files."""
        process = self._process
        if process is None or process.poll() is not None:
            self._stop()
            with self._starting:
                if self.ended:
                    raise UserError("this process ends")
                process = self._process = _started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(pickle.dumps(do))
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            raise UserError(f"the process that compiles, {sys.executable}, has ended") from None
        if isinstance(answer, Exception):
            raise answer
        found: dict[str, bytes] = answer
        return found


def _started() -> subprocess.Popen[bytes]:
    """A process that serves. Its path is an argument, so that it ends quietly where it is asked for nothing."""
    start = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import serve; serve()"
    return subprocess.Popen(
        [sys.executable, "-I", "-c", start, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A terminal's interrupt is not for it.
        start_new_session=True,
    )


_background: list[_Background] = []


def _drop() -> None:
    while _background:
        _background.pop().drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop)


def later(
    what: str, do: Callable[[], object], done: Callable[[], object], dropped: Callable[[], object]
) -> None:
    """Have something compiled by `do`, which can be pickled, in another process, and `done` called after it in this one.

    what: the subject of a sentence. dropped: is called instead where much else was asked for later, or in a forked process.
    """
    if not _background:
        _background.append(_Background())
    if not _background[0].ended:
        _background[0].put(_Work(what, do, done, dropped))


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
        try:
            answers.write(pickle.dumps(answer))
            answers.flush()
        except BrokenPipeError:  # who asked has been killed
            return
