"""Misconfigurations that the host or a scheduler prevents are errors, not other measurements."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ketscale.errors import UserError
from ketscale.jobs import context
from ketscale.measure import host


def test_a_mistake_that_a_scheduler_prevents_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    with pytest.raises(UserError, match=r"oversubscribed.* may use 1 core\(s\) for its 1 thread"):
        host.set_threads_of_all_cores(1)
    settings = SimpleNamespace(
        protocol=SimpleNamespace(timed=True, mistake="one-device"), run=SimpleNamespace(threads=1)
    )
    bound_apart = SimpleNamespace(local_rank=0, gather=lambda cores: [cores, [4]])
    with pytest.raises(UserError, match="one-device needs all ranks on the same cores"):
        context._bind(settings, bound_apart, 2)  # type: ignore[arg-type]
