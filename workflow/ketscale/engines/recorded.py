"""Calls of compiled code that are noted while they are made, to be made again without what led to them.

A training step of a small model is a few such calls, and Python takes as long to lead to them as they take themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The open recordings; whoever calls compiled code tells the last one.
opened: list[Recording] = []


class Recording:
    """Calls in their order, with their arguments.

    Attributes:
        whole: whether the calls are all that happened.
    """

    def __init__(self) -> None:
        self.whole = True
        self._calls: list[tuple[Callable[[int], Any], array[int], int]] = []
        self._kept: list[Any] = []

    @property
    def count(self) -> int:
        """How many calls there are."""
        return len(self._calls)

    def note(self, function: Callable[[int], Any], arguments: array[int], again: bool, *kept: Any) -> None:
        """Note a call; `kept` holds the memory that its arguments lead to.

        again: whether it may be made again as it is: on one thread.
        """
        own = array("q", arguments)
        self._calls.append((function, own, own.buffer_info()[0]))
        self._kept.append(kept)
        self.whole = self.whole and again

    def keep(self, memory: Any) -> None:
        """Keep what calls work with."""
        self._kept.append(memory)

    def run(self) -> None:
        """Make the calls again."""
        for function, arguments, address in self._calls:
            # The counters of its tasks and threads.
            arguments[0] = arguments[1] = 0
            function(address)


@contextmanager
def recording() -> Iterator[Recording]:
    """Inside the block, calls of compiled code are made and noted."""
    made = Recording()
    opened.append(made)
    try:
        yield made
    finally:
        opened.remove(made)
