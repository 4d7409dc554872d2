"""A call as a CUDA graph: its kernels are recorded once and then launched together, without Python between them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

import torch

from ketscale.private_torch import release_capture

T = TypeVar("T")

# Compiling and uploading tables, which cannot be captured, happen in these calls.
WARM_CALLS = 3
# Graphs whose capture failed: torch's allocator may still refer to them.
_FAILED: list[torch.cuda.CUDAGraph] = []


class NoGraph(NamedTuple):
    """Why there is no graph."""

    reason: str


def no_preparation() -> None:
    """What most calls need before them."""


def captured(
    call: Callable[[], T],
    device: torch.device,
    bytes_needed: int | None,
    before: Callable[[], None] = no_preparation,
    warm_calls: int = WARM_CALLS,
) -> Callable[[], T] | NoGraph:
    """The call as a graph's replay, which fills the same tensors each time; or why it cannot be captured.

    A capture computes nothing: before the first replay the tensors hold no result.
    bytes_needed: bytes that a call takes. A graph keeps as many for itself.
    before: what has to be done before each call and each replay, and is no part of the graph.
    warm_calls: the calls that are made first; 0 if there were some.
    """
    if bytes_needed is not None and bytes_needed > free_bytes(device):
        return NoGraph(f"a graph of its own would need {bytes_needed / 2**30:.3g} GiB more")
    stream, graph = torch.cuda.current_stream(device), torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    try:
        aside = torch.cuda.Stream(device)
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            for _ in range(warm_calls):
                before()
                call()
        stream.wait_stream(aside)
        with torch.cuda.graph(graph, pool=pool):
            result = call()
    except Exception as error:  # whatever a simulator raises, in torch or beyond
        _recover(graph, pool, device)
        # The end of a failed capture raises an error of its own.
        cause: BaseException = error
        while cause.__context__ is not None:
            cause = cause.__context__
        return NoGraph(f"{type(cause).__name__}: {cause}"[:200])
    finally:
        # A capture that failed leaves its own stream the current one.
        torch.cuda.set_stream(stream)

    def replay(
        owner: object = call,
    ) -> T:  # the graph reads and writes the memory of the tensors that `call` holds
        before()
        graph.replay()
        return result

    return replay


def free_bytes(device: torch.device) -> int:
    """What a GPU has left for new allocations."""
    release(device)
    return int(torch.cuda.mem_get_info(device)[0])


def release(device: torch.device) -> None:
    """Give back memory that nothing refers to, such as that of a call that ran out of it."""
    if device.type == "cuda":
        gc.collect()
        # torch raises while it assumes that a graph is being captured, as after a capture that failed.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def _recover(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], device: torch.device) -> None:
    """Let torch's allocator forget a capture that failed: torch 2.11 does not, and fails to free memory afterwards."""
    with suppress(RuntimeError):  # it has ended the capture by itself
        release_capture(device.index or 0, pool)
        _FAILED.append(graph)
