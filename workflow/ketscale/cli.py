"""The command line.

`ketscale train | launch | fetch | prepare | collect | figures | report | merge | compare | status | plan | recommend |
recover | schema | bench | doctor`. The commands of a group stand in a module of `commands`.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import __version__
from ketscale.commands import Command, data, results, runs, study
from ketscale.errors import UserError, in_words
from ketscale.optional import missing_in_words

if TYPE_CHECKING:
    from ketscale.bench.command import Files

EPILOG = """\
examples:
  ketscale doctor
      what this machine can run, and what each missing thing would enable
  ketscale launch results/runs/digits/vqc/q4-l3-b64/fused/cpu-n1r1t1/timing/seed0/metrics.json
      train one run of config.yaml with its ranks and threads set, no Snakemake needed
  ketscale status
      the state of every run of config.yaml, and how much is left
  snakemake --profile profiles/local report
      the whole study, its tables and figures, and results/report.html
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it did what was asked, 2 after an error that the user can fix, 130 or 143 if stopped.

    1 of `compare`: something became slower or worse.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr does: titles and names of files may have characters that the terminal has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = options.command(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    except (UserError, OSError, ModuleNotFoundError) as error:
        said = in_words(error)
        if isinstance(error, ModuleNotFoundError):
            said = missing_in_words(error, "this command")
        if said is None:
            raise
        print(f"ketscale: {said}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ketscale",
        description="Train hybrid quantum-classical models fast, and measure which simulator, device and kind of "
        "parallelism pays.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The Snakefile asks this of a command of another environment.
    parser.add_argument(
        "--version",
        action="version",
        version=f"ketscale {__version__} from {Path(__file__).resolve().parent}",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Command, text: str, detail: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text}. {detail}".strip())
        sub.set_defaults(command=function)
        return sub

    for group in (runs, data, results, study):
        group.add(command)
    sub = command(
        "schema", _schema, "Print the JSON schema of configs", "Editors use it to complete and check a file."
    )
    sub.add_argument("of", nargs="?", choices=("config", "site"), default="config", help="default: config")

    _add_bench(commands)
    command("doctor", _doctor, "Say what this machine can run, and what each missing thing would enable")
    return parser


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser("bench", help="Time simulators against each other")
    subjects = bench.add_subparsers(required=True, metavar="SUBJECT")
    repeats = ("repeats", "NUMBER", "timed repeats of a cell, at least 5")
    threads = ("threads", "NUMBER", "threads of every simulator (default: as many as cores)")
    device = ("device", "NAME", "cpu (the default) or cuda")
    drawn, undrawn = ("json", "csv", "figure", "markdown"), ("json", "csv", "markdown")

    def subject(
        name: str, function: Command, text: str, files: tuple[str, ...], *asked: tuple[str, str, str]
    ) -> None:
        sub = subjects.add_parser(name, help=text, description=f"Time {text}. See docs/benchmarks.md.")
        for option, metavar, meaning in asked:
            sub.add_argument(f"--{option}", metavar=metavar, help=meaning)
        for kind in files:
            sub.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write the results as {kind}")
        sub.set_defaults(command=function, asked=[option for option, *_ in asked])

    subject(
        "simulators", _bench_simulators, "value and gradient of small circuits with every simulator", drawn,
        ("ansatz", "NAMES", "circuits, separated by commas"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas"),
        ("batch", "NUMBERS", "batch sizes, separated by commas"),
        ("layers", "NUMBER", "layers of every circuit (default: 3, qlcu 2)"),
        ("simulators", "NAMES", "simulators, separated by commas"),
        ("budget", "SECONDS", "skip a simulator if one call is predicted to take longer"),
        repeats, threads, device,
    )  # fmt: skip
    subject(
        "models", _bench_models, "whole training steps of the models on series", drawn,
        ("models", "NAMES", "models, separated by commas"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas"),
        ("batch", "NUMBERS", "batch sizes, separated by commas"),
        ("simulators", "NAMES", "simulators, separated by commas"),
        ("budget", "SECONDS", "skip a simulator whose first step takes longer"),
        repeats, threads, device,
    )  # fmt: skip
    subject(
        "layouts", _bench_layouts, "a training step by one process with all threads and by as many processes", undrawn,
        ("models", "NAMES", "models of series or images, separated by commas (default: hydra)"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas (default: 6,8)"),
        ("batch", "NUMBERS", "batch sizes, separated by commas (default: 32,128)"),
        repeats, ("threads", "NUMBER", "threads of one process, and number of processes (default: as many as cores)"),
    )  # fmt: skip
    subject(
        "cohorts", _bench_cohorts, "a training step of several runs together and of one", undrawn,
        ("models", "NAMES", "models, separated by commas (default: vqc)"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas (default: 4)"),
        ("batch", "NUMBERS", "batch sizes, separated by commas (default: 64)"),
        ("runs", "NUMBERS", "numbers of runs, separated by commas (default: 4,16)"),
        repeats, ("threads", "NUMBER", "threads of the process (default: 1)"),
    )  # fmt: skip
    subject(
        "ranks", _bench_ranks, "training steps on one and on several CPU ranks, and their communication", undrawn,
        ("models", "NAMES", "models, separated by commas (default: vqc)"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas (default: 4)"),
        ("batch", "NUMBERS", "global batch sizes, separated by commas (default: 64,1024)"),
        ("backends", "NAMES", "ddp-cpu, mpi or both (the default)"),
        ("ranks", "NUMBERS", "numbers of ranks, separated by commas (default: 2)"),
        repeats,
    )  # fmt: skip
    subject(
        "dynamics", _bench_dynamics, "value and gradient of control tasks or pulses with every propagator", undrawn,
        ("problem", "NAME", "control (the default) or pulses"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas (default: 1, of pulses 4)"),
        ("segments", "NUMBER", "of control: segments of every pulse (default: 20)"),
        ("batch", "NUMBERS", "of control: numbers of tasks, separated by commas (default: 200)"),
        ("levels", "NUMBER", "of pulses: levels of each circuit (default: 2)"),
        ("simulators", "NAMES", "propagators, separated by commas"),
        ("budget", "SECONDS", "skip a propagator whose first call takes longer"),
        repeats, threads,
    )  # fmt: skip


def _schema(options: argparse.Namespace) -> None:
    from ketscale.config import published_schema, schema
    from ketscale.jobs.slurm.site import SiteFile
    from ketscale.problems.registry import FAMILIES

    print(json.dumps(published_schema(FAMILIES) if options.of == "config" else schema(SiteFile), indent=1))


def _bench_simulators(options: argparse.Namespace) -> None:
    from ketscale.bench import command, selection

    command.simulators(selection.parse(**_asked(options)), _files(options))


def _bench_models(options: argparse.Namespace) -> None:
    from ketscale.bench import command, models

    command.models(models.parse(**_asked(options)), _files(options))


def _bench_layouts(options: argparse.Namespace) -> None:
    from ketscale.bench import command, layouts

    command.layouts(layouts.parse(**_asked(options)), _files(options))


def _bench_cohorts(options: argparse.Namespace) -> None:
    from ketscale.bench import cohorts, command

    command.cohorts(cohorts.parse(**_asked(options)), _files(options))


def _bench_ranks(options: argparse.Namespace) -> None:
    from ketscale.bench import command, ranks

    command.ranks(ranks.parse(**_asked(options)), _files(options))


def _bench_dynamics(options: argparse.Namespace) -> None:
    from ketscale.bench import command
    from ketscale.bench.dynamics import selection
    from ketscale.bench.dynamics.pulses import selection as of_pulses

    asked = _asked(options)
    if asked["problem"] == of_pulses.PROBLEM:
        command.pulses(of_pulses.parse(**asked), _files(options))
    else:
        command.dynamics(selection.parse(**asked), _files(options))


def _asked(options: argparse.Namespace) -> dict[str, str | None]:
    return {name: getattr(options, name) for name in options.asked}


def _files(options: argparse.Namespace) -> Files:
    from ketscale.bench import command

    return command.Files(options.json, options.csv, getattr(options, "figure", None), options.markdown)


def _doctor(options: argparse.Namespace) -> int:
    from ketscale.jobs.doctor import diagnose

    return diagnose()


if __name__ == "__main__":
    sys.exit(main())
