"""Compiled functions as typed foreign calls of XLA, so that JAX runs them without Python between.

XLA calls one handler, which is machine code too. It finds a `Table` by the address in the call's attribute: which
functions to run, one after the other, and which of their arguments are buffers of the call. All memory is XLA's, so calls
may run at the same time. A function's threads are those of XLA's own pool, as many as are idle.

The layouts are those of XLA's C interface, version 0 (`xla/ffi/api/c_api.h` in jaxlib's folder of headers).
"""

from __future__ import annotations

import ctypes
import re
import secrets
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ketscale.engines.compiled.library import Library, Recipe

# The name by which XLA knows the handler.
TARGET = "ketscale"

# What XLA aligns its buffers to, in bytes; the widest vector.
ALIGNMENT = 64


class Place(NamedTuple):
    """Argument `slot` of the functions is the address of a buffer of the call, its operands before its results."""

    buffer: int
    slot: int


class Table:
    """What one foreign call does; the executables that call it must keep it.

    functions: in their order; each has its address, and whether threads share it. threads: at most so many of them.
    slots: the values of the functions' arguments, the counters among them. places: the slots that each call fills.
    kept: what else must live as long, such as the functions' code.
    """

    def __init__(
        self,
        functions: Sequence[tuple[int, bool]],
        threads: int,
        slots: Sequence[int],
        places: Sequence[Place],
        kept: Any,
    ) -> None:
        self._kept = kept
        counts = (threads, len(functions), len(places), len(slots))
        pairs = (*functions, *places)
        self._numbers = array("q", (*counts, *(int(number) for pair in pairs for number in pair), *slots))

    def attributes(self) -> Mapping[str, int]:
        """The attributes of the foreign call."""
        address, _ = self._numbers.buffer_info()
        return {"process": registered(), "table": address}


@cache
def registered() -> int:
    """Tells XLA of the handler, once in a process; a number that no other process has.

    An executable that another process has compiled names a table of that process: the handler refuses it.
    """
    import jax

    # What is used of version 0 is alike in its minor versions so far. XLA wants to hear its own.
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    (minor,) = re.findall(r"#define XLA_FFI_API_MINOR (\d+)", header)
    written = HANDLER.replace("MINOR", minor)
    library = Library(Recipe(written, ("begin", "answer"), lambda: written, ()))
    process = secrets.randbits(62)
    library.on_one_thread["begin"](process)
    handler = ctypes.cast(library.on_one_thread["answer"], ctypes.c_void_p)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform="cpu")
    _LIBRARIES.append(library)
    return process


# XLA may call the handler until the process ends.
_LIBRARIES: list[Library] = []

HANDLER = """
; The structures of XLA's interface, each with its size and its extensions in front.
%Version = type { i64, ptr, i32, i32 }
%Api = type { i64, ptr, %Version, ptr, [13 x ptr] }
%List = type { i64, ptr, i64, ptr, ptr }
%Attributes = type { i64, ptr, i64, ptr, ptr, ptr }
%Frame = type { i64, ptr, ptr, ptr, i32, %List, %List, %Attributes }
%Buffer = type { i64, ptr, i32, ptr, i64, ptr }
%Scalar = type { i32, ptr }
%Extension = type { i64, i32, ptr, ptr }
%Metadata = type { i64, %Version, i32 }
%Error = type { i64, ptr, ptr, i32 }
%Schedule = type { i64, ptr, ptr, ptr, ptr }
%Threads = type { i64, ptr, ptr, ptr }

; A function that threads share: who is inside (or, from 2**32 on, that nobody may enter), who still holds this memory,
; the function, and its arguments.
%Shared = type { i64, i64, ptr, [0 x i64] }

@process = internal global i64 0
; How many threads run functions or have been asked to.
@busy = internal global i64 0
@foreign = private constant [95 x i8] c"this executable was compiled by another process: KetScale's calls are valid in their own alone\\00"
@skewed = private constant [58 x i8] c"a buffer of a call of KetScale is not aligned to 64 bytes\\00"

declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define void @begin(i64 %process) {
  store i64 %process, ptr @process
  ret void
}

define internal ptr @function_of(ptr %frame, i64 %number) {
  %api.at = getelementptr %Frame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api.at
  %at = getelementptr %Api, ptr %api, i32 0, i32 4, i64 %number
  %function = load ptr, ptr %at
  ret ptr %function
}

define internal ptr @refused(ptr %frame, ptr %message) {
  %error = alloca %Error
  store %Error { i64 28, ptr null, ptr null, i32 9 }, ptr %error
  %at = getelementptr %Error, ptr %error, i32 0, i32 2
  store ptr %message, ptr %at
  %create = call ptr @function_of(ptr %frame, i64 0)
  %made = call ptr %create(ptr %error)
  ret ptr %made
}

; --- threads ---

define internal void @dropped(ptr %shared) {
  %at = getelementptr %Shared, ptr %shared, i32 0, i32 1
  %before = atomicrmw sub ptr %at, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %free, label %done
free:
  call void @free(ptr %shared)
  br label %done
done:
  ret void
}

define internal void @help(ptr %shared) {
  %before = atomicrmw add ptr %shared, i64 1 acq_rel
  %open = icmp ult i64 %before, 4294967296
  br i1 %open, label %inside, label %leave
inside:
  %function.at = getelementptr %Shared, ptr %shared, i32 0, i32 2
  %function = load ptr, ptr %function.at
  %arguments = getelementptr %Shared, ptr %shared, i32 0, i32 3
  call void %function(ptr %arguments)
  br label %leave
leave:
  %left = atomicrmw sub ptr %shared, i64 1 acq_rel
  %ended = atomicrmw sub ptr @busy, i64 1 monotonic
  call void @dropped(ptr %shared)
  ret void
}

; The size of XLA's pool, from which a function may have `threads` at most.
define internal i64 @pool(ptr %frame, i64 %threads) {
  %found = alloca i64
  %asked = alloca %Threads
  store i64 1, ptr %found
  %one = icmp eq i64 %threads, 1
  br i1 %one, label %done, label %ask
ask:
  store %Threads { i64 32, ptr null, ptr null, ptr null }, ptr %asked
  %context.at = getelementptr %Frame, ptr %frame, i32 0, i32 3
  %context = load ptr, ptr %context.at
  %asked.context = getelementptr %Threads, ptr %asked, i32 0, i32 2
  store ptr %context, ptr %asked.context
  %asked.found = getelementptr %Threads, ptr %asked, i32 0, i32 3
  store ptr %found, ptr %asked.found
  %count = call ptr @function_of(ptr %frame, i64 12)
  %error = call ptr %count(ptr %asked)
  call void @destroyed(ptr %frame, ptr %error)
  br label %done
done:
  %size = load i64, ptr %found
  ret i64 %size
}

define internal void @destroyed(ptr %frame, ptr %error) {
  %none = icmp eq ptr %error, null
  br i1 %none, label %done, label %destroy
destroy:
  %args = alloca %Threads
  store %Threads { i64 24, ptr null, ptr null, ptr null }, ptr %args
  %at = getelementptr %Threads, ptr %args, i32 0, i32 2
  store ptr %error, ptr %at
  %function = call ptr @function_of(ptr %frame, i64 2)
  call void %function(ptr %args)
  br label %done
done:
  ret void
}

define internal void @share(ptr %frame, ptr %function, ptr %arguments, i64 %bytes, i64 %helpers) {
  %size = add i64 %bytes, 24
  %shared = call ptr @malloc(i64 %size)
  store i64 0, ptr %shared
  %holders.at = getelementptr %Shared, ptr %shared, i32 0, i32 1
  %holders = add i64 %helpers, 1
  store i64 %holders, ptr %holders.at
  %function.at = getelementptr %Shared, ptr %shared, i32 0, i32 2
  store ptr %function, ptr %function.at
  %own = getelementptr %Shared, ptr %shared, i32 0, i32 3
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %arguments, i64 %bytes, i1 false)
  %task = alloca %Schedule
  store %Schedule { i64 40, ptr null, ptr null, ptr @help, ptr null }, ptr %task
  %context.at = getelementptr %Frame, ptr %frame, i32 0, i32 3
  %context = load ptr, ptr %context.at
  %task.context = getelementptr %Schedule, ptr %task, i32 0, i32 2
  store ptr %context, ptr %task.context
  %task.data = getelementptr %Schedule, ptr %task, i32 0, i32 4
  store ptr %shared, ptr %task.data
  %schedule = call ptr @function_of(ptr %frame, i64 11)
  br label %next
next:
  %number = phi i64 [ 0, %0 ], [ %following, %scheduled ], [ %following, %failed ]
  %following = add i64 %number, 1
  %more = icmp slt i64 %number, %helpers
  br i1 %more, label %ask, label %work
ask:
  %error = call ptr %schedule(ptr %task)
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %scheduled, label %failed
scheduled:
  br label %next
failed:
  call void @destroyed(ptr %frame, ptr %error)
  %fewer = atomicrmw sub ptr @busy, i64 1 monotonic
  call void @dropped(ptr %shared)
  br label %next
work:
  call void %function(ptr %own)
  %closed = atomicrmw add ptr %shared, i64 4294967296 acq_rel
  br label %wait
wait:
  %state = load atomic i64, ptr %shared acquire, align 8
  %inside = and i64 %state, 4294967295
  %alone = icmp eq i64 %inside, 0
  br i1 %alone, label %done, label %yield
yield:
  ; A helper that has lost its core gets this one.
  %yielded = call i32 @sched_yield()
  br label %wait
done:
  call void @dropped(ptr %shared)
  ret void
}

; --- the handler ---

define ptr @answer(ptr %frame) {
entry:
  %extension.at = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %call, label %extended
extended:
  %kind.at = getelementptr %Extension, ptr %extension, i32 0, i32 1
  %kind = load i32, ptr %kind.at
  %asks = icmp eq i32 %kind, 1
  br i1 %asks, label %metadata, label %call
metadata:
  %metadata.at = getelementptr %Extension, ptr %extension, i32 0, i32 3
  %metadata.of = load ptr, ptr %metadata.at
  %major = getelementptr %Metadata, ptr %metadata.of, i32 0, i32 1, i32 2
  store i32 0, ptr %major
  %minor = getelementptr %Metadata, ptr %metadata.of, i32 0, i32 1, i32 3
  store i32 MINOR, ptr %minor
  %traits = getelementptr %Metadata, ptr %metadata.of, i32 0, i32 2
  store i32 0, ptr %traits
  ret ptr null
call:
  ; The attributes are sorted by name: process, table.
  %attributes.at = getelementptr %Frame, ptr %frame, i32 0, i32 7, i32 5
  %attributes = load ptr, ptr %attributes.at
  %process.of = load ptr, ptr %attributes
  %process.at = getelementptr %Scalar, ptr %process.of, i32 0, i32 1
  %process.value = load ptr, ptr %process.at
  %theirs = load i64, ptr %process.value
  %ours = load i64, ptr @process
  %valid = icmp eq i64 %theirs, %ours
  br i1 %valid, label %valid.call, label %another
another:
  %refused = call ptr @refused(ptr %frame, ptr @foreign)
  ret ptr %refused
valid.call:
  %table.of = getelementptr ptr, ptr %attributes, i64 1
  %table.scalar = load ptr, ptr %table.of
  %table.at = getelementptr %Scalar, ptr %table.scalar, i32 0, i32 1
  %table.value = load ptr, ptr %table.at
  %table = load ptr, ptr %table.value
  %threads = load i64, ptr %table
  %functions.at = getelementptr i64, ptr %table, i64 1
  %functions.count = load i64, ptr %functions.at
  %places.at = getelementptr i64, ptr %table, i64 2
  %places.count = load i64, ptr %places.at
  %slots.at = getelementptr i64, ptr %table, i64 3
  %slots.count = load i64, ptr %slots.at
  %functions = getelementptr i64, ptr %table, i64 4
  %functions.length = shl i64 %functions.count, 1
  %places = getelementptr i64, ptr %functions, i64 %functions.length
  %places.length = shl i64 %places.count, 1
  %slots = getelementptr i64, ptr %places, i64 %places.length
  %arguments = alloca i64, i64 %slots.count, align 16
  %bytes = shl i64 %slots.count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %arguments, ptr %slots, i64 %bytes, i1 false)
  %operands.count.at = getelementptr %Frame, ptr %frame, i32 0, i32 5, i32 2
  %operands.count = load i64, ptr %operands.count.at
  %operands.at = getelementptr %Frame, ptr %frame, i32 0, i32 5, i32 4
  %operands = load ptr, ptr %operands.at
  %results.at = getelementptr %Frame, ptr %frame, i32 0, i32 6, i32 4
  %results = load ptr, ptr %results.at
  br label %fill
fill:
  %place = phi i64 [ 0, %valid.call ], [ %place.next, %filled ]
  %filling = icmp slt i64 %place, %places.count
  br i1 %filling, label %filled.one, label %run
filled.one:
  %pair = shl i64 %place, 1
  %buffer.at = getelementptr i64, ptr %places, i64 %pair
  %buffer.number = load i64, ptr %buffer.at
  %slot.at = getelementptr i64, ptr %buffer.at, i64 1
  %slot = load i64, ptr %slot.at
  %is.operand = icmp slt i64 %buffer.number, %operands.count
  %result.number = sub i64 %buffer.number, %operands.count
  %operand.of = getelementptr ptr, ptr %operands, i64 %buffer.number
  %result.of = getelementptr ptr, ptr %results, i64 %result.number
  %found.of = select i1 %is.operand, ptr %operand.of, ptr %result.of
  %found = load ptr, ptr %found.of
  %data.at = getelementptr %Buffer, ptr %found, i32 0, i32 3
  %data = load i64, ptr %data.at
  %low = and i64 %data, 63
  %straight = icmp eq i64 %low, 0
  %fits = or i1 %straight, %is.operand
  br i1 %fits, label %filled, label %skew
skew:
  %refused.skew = call ptr @refused(ptr %frame, ptr @skewed)
  ret ptr %refused.skew
filled:
  %argument.at = getelementptr i64, ptr %arguments, i64 %slot
  store i64 %data, ptr %argument.at
  %place.next = add i64 %place, 1
  br label %fill
run:
  %size = call i64 @pool(ptr %frame, i64 %threads)
  %began = atomicrmw add ptr @busy, i64 1 monotonic
  br label %each
each:
  %number = phi i64 [ 0, %run ], [ %number.next, %ran ]
  %running = icmp slt i64 %number, %functions.count
  br i1 %running, label %one, label %end
one:
  %number.next = add i64 %number, 1
  %first = shl i64 %number, 1
  %function.at = getelementptr i64, ptr %functions, i64 %first
  %function = load ptr, ptr %function.at
  %parallel.at = getelementptr i64, ptr %function.at, i64 1
  %parallel = load i64, ptr %parallel.at
  ; Functions take their tasks, and their threads' numbers, from two counters.
  store i64 0, ptr %arguments
  %second = getelementptr i64, ptr %arguments, i64 1
  store i64 0, ptr %second
  %busy = load atomic i64, ptr @busy monotonic, align 8
  %idle = sub i64 %size, %busy
  %others = sub i64 %threads, 1
  %most = call i64 @llvm.smin.i64(i64 %idle, i64 %others)
  %wanted = mul i64 %most, %parallel
  %helpers = call i64 @llvm.smax.i64(i64 %wanted, i64 0)
  %alone = icmp eq i64 %helpers, 0
  br i1 %alone, label %by.itself, label %together
by.itself:
  call void %function(ptr %arguments)
  br label %ran
together:
  %asked = atomicrmw add ptr @busy, i64 %helpers monotonic
  call void @share(ptr %frame, ptr %function, ptr %arguments, i64 %bytes, i64 %helpers)
  br label %ran
ran:
  br label %each
end:
  %ended = atomicrmw sub ptr @busy, i64 1 monotonic
  ret ptr null
}
"""
