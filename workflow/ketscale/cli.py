"""The command line.

`ketscale train | launch | features | collect | figures | report | status | recover | bench | doctor`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import __version__, config, grid
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.bench.command import Files

Command = Callable[[argparse.Namespace], int | None]

EPILOG = """\
examples:
  ketscale doctor
      what this machine can run, and what each missing thing would enable
  ketscale launch results/runs/digits/vqc/q4-l3-b64/fused/cpu-n1r1t1/timing/seed0/metrics.json
      train one run of config.yaml with its ranks and threads set, no Snakemake needed
  ketscale status
      where every run of config.yaml stands, and how much is left
  snakemake --profile profiles/local report
      the whole study, its tables and figures, and results/report.html
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it did what was asked, 2 after a `UserError`, 143 when stopped by SIGTERM."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except UserError as error:
        print(f"ketscale: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ketscale",
        description="Train hybrid quantum-classical models fast, and measure which simulator, device and kind of "
        "parallelism pays.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ketscale {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Command, text: str, detail: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text}. {detail}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=function)
        return sub

    starters: tuple[tuple[str, Command, str, str], ...] = (
        (
            "train",
            _train,
            "Train one run and write its record",
            "One process of the run: `launch` starts all of its ranks. A run that was\nstopped goes on from its checkpoint.",
        ),
        (
            "launch",
            _launch,
            "Start all ranks of one run with their threads set, and train it",
            "Runs `ketscale train` under mpirun or torchrun as the run's backend needs; in an allocation\nof SLURM under srun.",
        ),
    )
    for name, function, text, detail in starters:
        sub = command(name, function, text, detail)
        sub.add_argument("record", help="the run, as the path of its record: results/runs/.../metrics.json")
        source = sub.add_mutually_exclusive_group()
        source.add_argument(
            "--config", type=Path, default=Path("config.yaml"), help="study that defines the run's names"
        )
        source.add_argument("--settings", help="the run's resolved settings as JSON, in place of a config")
        sub.add_argument(
            "--features",
            type=Path,
            metavar="FILE",
            help="features.json of the workload (default: results/features/WORKLOAD/features.json)",
        )
        sub.add_argument(
            "--trace",
            type=Path,
            metavar="FILE",
            help="write the spans of the sampled steps for chrome://tracing or Perfetto",
        )

    features = commands.add_parser(
        "features", help="Fetch data, train the feature network, compute cached features"
    )
    steps = features.add_subparsers(required=True, metavar="STEP")
    fetch = steps.add_parser("fetch-mnist", help="download the four idx files, checksums verified")
    fetch.add_argument("folder", type=Path)
    fetch.set_defaults(command=_fetch_mnist)
    eeg = steps.add_parser("fetch-eegmmidb", help="download EDF files from PhysioNet with MNE, sums verified")
    eeg.add_argument("folder", type=Path)
    for name in ("subjects", "runs"):
        eeg.add_argument(f"--{name}", type=int, nargs="+", required=True, metavar="NUMBER")
    eeg.set_defaults(command=_fetch_eegmmidb)
    imagenet = steps.add_parser(
        "fetch-imagenet", help="get microsoft/resnet-18 from the hub, its cache or a folder"
    )
    imagenet.add_argument("out", type=Path)
    imagenet.add_argument("--folder", type=Path, help="local folder with the model's config.json and weights")
    imagenet.set_defaults(command=_fetch_imagenet)
    steps_of: tuple[tuple[str, Command, str], ...] = (
        ("pretrain", _pretrain, "train ResNet-18 on the training images without labels"),
        ("compute", _compute, "compute the embeddings of all images once"),
        ("prepare", _prepare, "put the trials of series, or sentences, into arrays, and split them"),
    )
    for name, function, text in steps_of:
        step = steps.add_parser(name, help=text)
        step.add_argument("workload")
        source = step.add_mutually_exclusive_group()
        source.add_argument("--config", type=Path, default=Path("config.yaml"))
        source.add_argument("--settings", help="the workload's config block as JSON")
        step.add_argument("--source", type=Path, help="folder with the workload's files, where it needs any")
        step.add_argument("--out", type=Path, required=True)
        if name == "compute":
            step.add_argument(
                "--weights", type=Path, required=True, help="file of pretrain or fetch-imagenet"
            )
        step.set_defaults(command=function)

    stages: tuple[tuple[str, Command, str], ...] = (
        ("collect", _collect, "Check all records of a study and write results/tables"),
        ("figures", _figures, "Draw results/figures from the tables"),
        ("report", _report, "Build results/report.html from tables and figures"),
    )
    for name, function, text in stages:
        sub = command(name, function, text)
        source = sub.add_mutually_exclusive_group()
        source.add_argument("--config", type=Path, default=Path("config.yaml"))
        source.add_argument("--study", help="the whole config as JSON")
        if name == "collect":
            sub.add_argument(
                "--partial", action="store_true", help="use the runs that exist and list the missing ones"
            )

    sub = command(
        "status",
        _status,
        "Say where every run of a study stands, and how much is left",
        "It only looks, and may be called at any time.",
    )
    sub.add_argument("--config", type=Path, default=Path("config.yaml"))
    sub.add_argument("--json", action="store_true", help="the same as JSON, for scripts")
    sub.add_argument(
        "--failed",
        action="store_true",
        help="only the runs that failed, were interrupted or are stale, with what runs each again",
    )
    sub = command(
        "recover",
        _recover,
        "Clear what a killed Snakemake has left, so that the next call goes on",
        "It cancels\nthis folder's jobs in SLURM's queue, takes locks off, and keeps finished runs\n"
        "from being trained again. Call it on the machine where Snakemake ran.",
    )
    sub.add_argument("--config", type=Path, default=Path("config.yaml"))
    sub.add_argument(
        "--wait", action="store_true", help="let the jobs that run finish; cancel only those that wait"
    )

    _add_bench(commands)
    command("doctor", _doctor, "Say what this machine can run, and what each missing thing would enable")
    return parser


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser("bench", help="Time simulators against each other")
    subjects = bench.add_subparsers(required=True, metavar="SUBJECT")
    text = "value and gradient of small circuits, by every simulator"
    simulators = subjects.add_parser(
        "simulators", help=text, description=f"Time {text}. See docs/benchmarks.md."
    )
    for option, metavar, text in (
        ("ansatz", "NAMES", "circuits, separated by commas"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas"),
        ("batch", "NUMBERS", "batch sizes, separated by commas"),
        ("layers", "NUMBER", "layers of every circuit (default: 3, qlcu 2)"),
        ("simulators", "NAMES", "simulators, separated by commas"),
        ("budget", "SECONDS", "leave out a simulator where one call is predicted to take longer"),
        ("repeats", "NUMBER", "timed repeats of a cell, at least 5"),
        ("threads", "NUMBER", "threads of every simulator (default: as many as cores)"),
    ):
        simulators.add_argument(f"--{option}", metavar=metavar, help=text)
    simulators.set_defaults(command=_bench_simulators)
    text = "whole training steps of the models on series"
    models = subjects.add_parser("models", help=text, description=f"Time {text}. See docs/benchmarks.md.")
    for option, metavar, text in (
        ("models", "NAMES", "models, separated by commas"),
        ("qubits", "NUMBERS", "numbers of qubits, separated by commas"),
        ("batch", "NUMBERS", "batch sizes, separated by commas"),
        ("simulators", "NAMES", "simulators, separated by commas"),
        ("budget", "SECONDS", "do not time a simulator whose first step takes longer"),
        ("repeats", "NUMBER", "timed repeats of a cell, at least 5"),
        ("threads", "NUMBER", "threads of every simulator (default: as many as cores)"),
    ):
        models.add_argument(f"--{option}", metavar=metavar, help=text)
    models.set_defaults(command=_bench_models)
    for subject in (simulators, models):
        for kind in ("json", "csv", "figure", "markdown"):
            subject.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write the results as {kind}")


def _run_and_settings(options: argparse.Namespace) -> tuple[grid.Run, dict[str, Any]]:
    run = grid.Run.parse(options.record)
    if options.settings:
        return run, _json(options.settings, "--settings")
    study = config.load(options.config)
    config.check(study)
    config.check_run(run, study)
    return run, grid.resolve(study, run)


def _json(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{option}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{option}: must be a JSON object")
    return value


def _folder(options: argparse.Namespace) -> Path:
    return Path(options.record.removesuffix(grid.RECORD))


def _train(options: argparse.Namespace) -> int:
    run, settings = _run_and_settings(options)
    manifest = options.features or _manifest(run)
    from ketscale.measure.environment import THREAD_VARIABLES

    # Started by hand without them: pools of threads read them when they are imported. Other numbers are refused.
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(run.threads))
    from ketscale.jobs.session import train
    from ketscale.training.loop import Stopped

    try:
        status = train(run, settings, _folder(options), manifest, options.trace)
    except Stopped as stopped:
        print(f"ketscale: {stopped}", file=sys.stderr)
        return 143
    print(f"{run.folder}: {status}")
    return 0


def _launch(options: argparse.Namespace) -> int:
    run, settings = _run_and_settings(options)
    from ketscale.jobs import finished, launch, supervise
    from ketscale.jobs.slurm import queue, site

    folder = _folder(options)
    manifest = options.features or _manifest(run)
    if finished.restore(folder, settings, finished.features_hash(manifest)):
        print(f"{run.folder}: finished in this call already")
        return 0
    arguments = ["ketscale", "train", options.record, "--settings", grid.canonical(settings)]
    for name in ("features", "trace"):
        if getattr(options, name):
            arguments += [f"--{name}", str(getattr(options, name))]
    # The launchers are found beside this Python, in its environment, before any others.
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    job = site.here()
    if job is not None:
        # Snakemake hides it from a run, whose lease tells by it that the job's former life is over.
        environment["SLURM_RESTART_COUNT"] = str(queue.restarts(job) or 0)
    return supervise.run(f"{launch.prefix_here(run)} {shlex.join(arguments)}", folder, environment)


def _manifest(run: grid.Run) -> Path:
    return Path(f"results/features/{run.workload}/features.json")


def _workload_settings(options: argparse.Namespace) -> dict[str, Any]:
    if options.settings:
        return _json(options.settings, "--settings")
    study = config.load(options.config)
    config.check(study)
    if options.workload not in study["workloads"]:
        raise UserError(
            f"{options.config}: no workload {options.workload!r}; it has {', '.join(study['workloads'])}"
        )
    return study["workloads"][options.workload]


def _fetch_mnist(options: argparse.Namespace) -> None:
    from ketscale.problems.images import mnist

    mnist.fetch(options.folder)


def _fetch_eegmmidb(options: argparse.Namespace) -> None:
    from ketscale.problems.eeg import eegmmidb

    eegmmidb.fetch(options.folder, options.subjects, options.runs)


def _fetch_imagenet(options: argparse.Namespace) -> None:
    from ketscale.problems.images import resnet

    resnet.fetch_imagenet(options.out, folder=options.folder)


def _pretrain(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    from ketscale.problems.images.pretrain import pretrain

    with tqdm(unit="step", mininterval=2) as bar:

        def progress(step: int, steps: int, loss: float) -> None:
            bar.total = steps
            bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
            bar.update()

        settings = _workload_settings(options)
        pretrain(options.workload, settings, source=options.source, out=options.out, progress=progress)


def _compute(options: argparse.Namespace) -> None:
    from ketscale.problems.images import features

    features.compute(
        options.workload,
        _workload_settings(options),
        manifest=options.out,
        source=options.source,
        weights=options.weights,
    )


def _prepare(options: argparse.Namespace) -> None:
    from ketscale.problems.eeg import series
    from ketscale.problems.sentences import sentences

    settings = _workload_settings(options)
    if options.workload == "sentences":
        sentences.prepare(settings, manifest=options.out, source=options.source)
    else:
        series.prepare(options.workload, settings, manifest=options.out, source=options.source)


def _study(options: argparse.Namespace) -> dict[str, Any]:
    study = _json(options.study, "--study") if options.study else config.load(options.config)
    config.check(study)
    return study


def _collect(options: argparse.Namespace) -> None:
    from ketscale.analysis import tables

    tables.collect(_study(options), Path(), Path("results/tables"), partial=options.partial)


def _figures(options: argparse.Namespace) -> None:
    from ketscale.analysis import figures

    figures.draw(_study(options), Path("results/tables"), Path("results/figures"))


def _report(options: argparse.Namespace) -> None:
    from ketscale.analysis import report

    report.build(
        _study(options), Path("results/tables"), Path("results/figures"), Path("results/report.html")
    )


def _status(options: argparse.Namespace) -> None:
    study = _checked(options.config)
    from ketscale.jobs.status import report

    said = report.look(study, options.config, Path())
    print((report.as_json if options.json else report.as_text)(said, options.failed))


def _recover(options: argparse.Namespace) -> None:
    study = _checked(options.config)
    from ketscale.jobs.recover import recover

    recover(study, options.config, options.wait)


def _checked(path: Path) -> dict[str, Any]:
    study = config.load(path)
    config.check(study)
    return study


def _bench_simulators(options: argparse.Namespace) -> None:
    from ketscale.bench import command, selection

    names = ("ansatz", "qubits", "batch", "layers", "simulators", "budget", "repeats", "threads")
    chosen = selection.parse(**{name: getattr(options, name) for name in names})
    command.simulators(chosen, _files(options))


def _bench_models(options: argparse.Namespace) -> None:
    from ketscale.bench import command, models

    names = ("models", "qubits", "batch", "simulators", "budget", "repeats", "threads")
    chosen = models.parse(**{name: getattr(options, name) for name in names})
    command.models(chosen, _files(options))


def _files(options: argparse.Namespace) -> Files:
    from ketscale.bench import command

    return command.Files(options.json, options.csv, options.figure, options.markdown)


def _doctor(options: argparse.Namespace) -> int:
    from ketscale.jobs.doctor import diagnose

    return diagnose()


if __name__ == "__main__":
    sys.exit(main())
