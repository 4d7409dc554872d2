"""Which machine code answers one kind of calls: code that reads what it computes from a table, until there is own code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ketscale.engines.compiled import background
from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.specialised import chosen, having_own, specialisation

C = TypeVar("C")


class CodeChoice(Generic[C]):
    """The code of each call; see `specialised.specialise`.

    what: is computed, in words. kernel: of own code; it can be pickled. make: makes own code; reading: the code that reads
    a table, from the arguments of `now`. own: own code, if calls are to have it, or None.
    """

    def __init__(
        self, what: str, kernel: Callable[[], Kernel], make: Callable[[], C], reading: Callable[..., C]
    ) -> None:
        self.own: C | None = None
        self._what, self._kernel, self._make, self._reading = what, kernel, make, reading
        self._made: C | None = None
        self._calls = 0

    def now(self, *sizes: Any) -> C:
        """The code of the next call; the second one that reads the table has own code compiled."""
        return self.own or self._chosen(*sizes)

    def specialised(self) -> C:
        """Own code, which is compiled if it must be.

        Raises:
            UserError: the cache folder cannot be written.
        """
        if self._made is None:
            self._made = self._make()
        return self._made

    def _take_over(self) -> C:
        own = self.specialised()
        if chosen() != "never":
            self.own = own
            having_own.add(self)
        return own

    def _drop(self) -> None:
        self._calls = 1

    def _chosen(self, *sizes: Any) -> C:
        mode = specialisation()
        if mode == "again":
            if self._made is not None or (self._calls == 0 and self._kernel().is_kept):
                return self._take_over()
            self._calls += 1
            if self._calls == 2:
                background.later(self._what, partial(_compile, self._kernel), self._take_over, self._drop)
        return self._take_over() if mode == "always" else self._reading(*sizes)


def _compile(kernel: Callable[[], Kernel]) -> None:
    """Compile own code, for the cache folder."""
    kernel().compile()
