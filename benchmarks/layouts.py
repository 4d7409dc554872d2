"""`ketscale bench layouts`: a training step by one process with one or all threads, and by as many processes.

Each process takes its share of the batch with one thread, as a rank does, but nothing is reduced. So what ranks gain
over threads here is a weakness of one process, not of the cores.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from benchmarks import machine, steps
from benchmarks.options import all_cores, names, number, numbers, option
from benchmarks.runner import Call, Column, Row, Rows, by_case, declared
from benchmarks.steps import ModelCase, TrainingSteps
from ketscale.errors import UserError
from ketscale.measure import host
from ketscale.process import keep_freed_memory

READY, DONE = "ready", "done"


@dataclass(kw_only=True)
class Layouts(TrainingSteps):
    """Steps by the simulator of a classical model's own kind or by fused. Times end with the last process's step.

    threads: of one process, and the number of processes.
    """

    text = "a training step by one process with all threads and by as many processes"
    subject = "layout"
    columns = (declared("simulator"), Column("ranks"), Column("threads"))

    models: tuple[str, ...] = option(("hydra",), names(steps.LABELLED_MODELS), "models of series or images")
    qubits: tuple[int, ...] = option((6, 8), numbers(2), "numbers of qubits")
    batch: tuple[int, ...] = option((32, 128), numbers(1), "batch sizes")
    repeats: int = option(15, number(5), "timed repeats of a case, at least 5")
    threads: int = option(
        all_cores, number(2), "threads of one process, and number of processes (default: as many as cores)"
    )

    def check(self) -> None:
        if self.threads < 2:
            raise UserError("bench layouts compares threads with processes: it needs 2 cores or more")
        if min(self.batch) < self.threads:
            raise UserError(f"--batch: every process needs a sample: at least {self.threads}")

    def subjects(self, case: ModelCase) -> list[str]:
        """The layouts by ranks and threads of each."""
        return ["r1t1", f"r1t{self.threads}", f"r{self.threads}t1"]

    def measure(self, case: ModelCase) -> Rows:
        """See `Benchmark.measure`; the processes end with the case."""
        with ExitStack() as self._running:
            return super().measure(case)

    def prepare(self, case: ModelCase, name: str, row: Row) -> Call:
        """Start the processes of a layout, each on its cores."""
        ranks, threads = map(int, name[1:].split("t"))
        row |= {"simulator": steps.arms(case.model)[0], "ranks": ranks, "threads": threads}
        cores = self.cores
        places = [cores[:threads]] if ranks == 1 else [[core] for core in cores[:ranks]]
        return self._running.enter_context(_processes(case, places))

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """By case: what threads and what processes gain over one thread, and the ratio of both."""
        values = []
        for case, timed in by_case(ModelCase, rows, cls.subject).items():
            if len(timed) == 3:
                one, threads, processes = (row["median_s"] for row in timed.values())
                values.append(
                    f"{case}: threads {one / threads:.3g}x, processes {one / processes:.3g}x, "
                    f"threads take {threads / processes:.3g}x as long as processes"
                )
        return values


@contextmanager
def _processes(case: ModelCase, places: Sequence[Sequence[int]]) -> Iterator[Call]:
    """Processes with a share of the case each; calling makes all of them take a step at the same time."""
    running: list[subprocess.Popen[str]] = []
    try:
        for share, cores in zip(torch.arange(case.batch).tensor_split(len(places)), places, strict=True):
            running.append(
                subprocess.Popen(
                    machine.child("layouts", case.model, case.qubits, len(share), ",".join(map(str, cores))),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                    env=machine.child_environment(len(cores)),
                )
            )
        _await(running, READY)

        def step() -> None:
            for process in running:
                assert process.stdin
                process.stdin.write("\n")
            _await(running, DONE)

        yield step
    finally:
        for process in running:
            # Its input ends, and so does it.
            process.communicate()


def _await(running: Sequence[subprocess.Popen[str]], word: str) -> None:
    for process in running:
        assert process.stdout
        if process.stdout.readline().strip() != word:
            raise UserError("bench layouts: a process ended before its step was finished; its error is above")


def _serve(model: str, qubits: str, batch: str, cores: str) -> None:
    """Take a step for each line of input."""
    mine = [int(core) for core in cores.split(",")]
    keep_freed_memory()
    host.bind_to(mine)
    torch.set_num_threads(len(mine))
    call = steps.step(ModelCase(model, int(qubits), int(batch)), steps.arms(model)[0])
    call()
    print(READY, flush=True)
    for _ in sys.stdin:
        call()
        print(DONE, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
