"""A user's project on the cluster of tests/nightly/slurm, driven by the commands that a user types."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ketscale import analysis, grid
from ketscale.grid import Run
from ketscale.jobs.slurm import queue, site
from tests import ROOT

BIN = Path(sys.executable).parent
# The profile's first look at a job comes after ten seconds, and each next one ten seconds later than the last: too rare for
# runs of seconds. Everything else is as a user has it, but for ranks that yield (`Project.environment`).
DRIVER = ("snakemake", "--profile", "slurm", "--slurm-init-seconds-before-status-checks", "2")
OFTEN = """
if workflow.is_main_process:
    from snakemake_executor_plugin_slurm import Executor

    Executor.next_seconds_between_status_checks = property(lambda self: 2, lambda self, seconds: None)
"""


def target(run: Run) -> str:
    """The run's record, as Snakemake and the command line are told it."""
    return f"results/{run.path}"


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 600) -> Any:
    """The condition's value once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.5)
    return value


def ask(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


class Project:
    """A copy of the repository's workflow in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What a user's shell may have besides: variables, and folders in which Python looks first.
        self.variables: dict[str, str] = {}
        self.first: list[str] = []
        folder.mkdir(parents=True)
        for name in ("Snakefile", "config.yaml"):
            shutil.copy(ROOT / name, folder)
        with (folder / "Snakefile").open("a") as file:
            file.write(OFTEN)
        for name in ("profiles", "envs"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copytree(ROOT / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("ketscale"))
        shutil.copy(ROOT / "slurm", folder / "slurm", follow_symlinks=False)

    @property
    def environment(self) -> dict[str, str]:
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SNAKEMAKE", "KETSCALE_CALL"))
        }
        return {
            **environment,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*self.first, str(ROOT / "workflow")]),
            # The nodes share a machine's cores: a rank that waits for another must not hold the one that it needs.
            "OMPI_MCA_mpi_yield_when_idle": "1",
            **self.variables,
        }

    def site(self, **settings: Any) -> None:
        """Edit profiles/slurm/site.yaml as a user does."""
        path = self.folder / site.PATH
        selected = {
            "account": "ci",
            "partition": "cpu",
            "node_type": "simulated",
            "features": {"minutes": 30, "memory_mb": 2000},
            # SLURM warns two minutes before the end, which must not come while ranks start on a busy machine.
            "limits": [{"minutes": 10, "memory_mb": 1500}],
            **settings,
        }
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **selected}))

    def study(self, **config: Any) -> list[Run]:
        """Write config.yaml; its runs."""
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        return list(analysis.of(config).runs)

    def prepare(self) -> None:
        """Prepare the sentences here instead of in a job of their own, which would take half a minute."""
        self.ketscale("prepare", "sentences")

    def snakemake(
        self, *arguments: str, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """`snakemake --profile slurm ...` to its end."""
        return self.run(*DRIVER, *arguments, check=check, seconds=seconds)

    def ketscale(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`ketscale ...` to its end."""
        return self.run("ketscale", *arguments, check=check)

    def run(
        self, *command: str, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """A command in the project's folder, to its end."""
        result = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`snakemake --profile slurm ...` in the background; what is left of it and of its jobs is ended."""
        process = self.start(*arguments)
        try:
            yield process
        finally:
            self.end(process)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`snakemake --profile slurm ...` in the background."""
        with (self.folder / "driver.log").open("a") as log:
            return subprocess.Popen(
                [*DRIVER, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                # The tests may be in the background of a script, which ignores it.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def end(self, process: subprocess.Popen[str]) -> None:
        """End what is left of it and of its jobs."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        left = queue.jobs(self.folder)
        if left:
            queue.cancel(left)
            wait_for("the queue to be empty", lambda: not queue.jobs(self.folder))

    @property
    def log(self) -> str:
        """What the drivers in the background have said."""
        return (self.folder / "driver.log").read_text()

    def results(self, run: Run) -> Path:
        """The run's folder."""
        return self.folder / "results" / run.folder

    def record(self, run: Run) -> dict[str, Any]:
        """The run's record."""
        return json.loads((self.results(run) / grid.RECORD).read_text())

    def checkpoint(self, run: Run) -> Path | None:
        """The run's checkpoint, once it is there."""
        return next(iter((self.results(run) / "checkpoint").glob("*.pt")), None)

    def note(self, run: Run) -> dict[str, Any]:
        """Why the run failed."""
        return json.loads((self.results(run) / "failure.json").read_text())

    def job(self, pack: str = "") -> queue.Job | None:
        """The project's running job, of this pack."""
        jobs = [job for job in queue.jobs(self.folder) if job.state == "RUNNING" and pack in job.pack]
        return jobs[0] if jobs else None


def accounted(job: str, column: str, *options: str) -> str:
    """What SLURM's accounting says of a job."""
    return ask("sacct", "-X", "-n", "-P", "-j", job, "-o", column, *options).strip()


def restarts(job: str) -> int:
    """How often SLURM has requeued a job."""
    text = subprocess.run(["scontrol", "-o", "show", "job", job], capture_output=True, text=True, timeout=60)
    number = re.search(r"\bRestarts=(\d+)", text.stdout)
    return int(number[1]) if number else 0
