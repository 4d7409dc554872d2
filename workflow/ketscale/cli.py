"""The command line.

`ketscale train | launch | fetch | prepare | collect | figures | report | merge | compare | status | plan | recommend |
recover | schema | bench | doctor`.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ketscale import __version__, grid, strict_json
from ketscale.errors import UserError, in_words
from ketscale.optional import needed_for

if TYPE_CHECKING:
    from ketscale.config import Config, Settings, Workload

Command = Callable[[argparse.Namespace], int | None]

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
    # Figures are files. The variable may name a window, or a notebook's backend that is not installed here.
    os.environ["MPLBACKEND"] = "agg"
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
    except (UserError, OSError) as error:
        said = in_words(error)
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
            "It is the process of one rank; `launch` starts all ranks. A run that was stopped\nresumes from its "
            "checkpoint; a timed one starts anew.",
        ),
        (
            "launch",
            _launch,
            "Start all ranks of one run with their threads set, and train it",
            "Runs `ketscale train` under mpirun or torchrun, as the run's backend needs, or under srun\n"
            "inside a SLURM allocation.",
        ),
    )
    for name, function, text, detail in starters:
        sub = command(name, function, text, detail)
        sub.add_argument("record", help="path of the run's record: results/runs/.../metrics.json")
        source = sub.add_mutually_exclusive_group()
        _add_config(source)
        source.add_argument("--settings", help="the run's resolved settings as JSON, instead of a config")
        sub.add_argument(
            "--features",
            type=Path,
            nargs="?",
            metavar="FILE",
            help="features.json of the workload (default: features/WORKLOAD/features.json in the results folder)",
        )
        sub.add_argument(
            "--trace",
            type=Path,
            metavar="FILE",
            help="write the spans of the sampled steps for chrome://tracing or Perfetto",
        )
        if name == "train":
            sub.add_argument(
                "--cohort",
                type=Path,
                metavar="FILE",
                help="runs to train together with this one, as a call of Snakemake writes them down",
            )

    makers: tuple[tuple[str, Command, str, str], ...] = (
        (
            "fetch",
            _fetch,
            "Download what a workload needs, and verify checksums",
            "Only data sets and weights that no folder named in the config provides.",
        ),
        (
            "prepare",
            _prepare,
            "Convert a workload's data, once, to the form that runs read",
            "What that is depends on the workload's family. Data that are complete already are kept.",
        ),
    )
    for name, function, text, detail in makers:
        sub = command(name, function, text, detail)
        sub.add_argument("workload", help="the workload's name in the config")
        source = sub.add_mutually_exclusive_group()
        _add_config(source)
        source.add_argument("--settings", help="the workload's settings as JSON, instead of a config")
        sub.add_argument(
            "--local",
            default="{}",
            help="with --settings: where the workload's files are on this machine, as JSON",
        )
        if name == "prepare":
            sub.add_argument(
                "--fetched", type=Path, nargs="?", metavar="FILE", help="fetched.json of `ketscale fetch`"
            )
        sub.add_argument(
            "--out", type=Path, metavar="FILE", help="the manifest to write (default: in the results folder)"
        )

    stages: tuple[tuple[str, Command, str], ...] = (
        ("collect", _collect, "Check all records of a study and write its tables"),
        ("figures", _figures, "Draw a study's figures from its tables"),
        ("report", _report, "Build a study's report.html from tables and figures"),
    )
    for name, function, text in stages:
        sub = command(name, function, text)
        source = sub.add_mutually_exclusive_group()
        _add_config(source)
        if name == "collect":
            sub.add_argument(
                "--partial", action="store_true", help="use the runs that exist and list the missing ones"
            )
        source.add_argument("--study", help="the whole config as JSON, instead of a file")
        if name == "collect":
            sub.add_argument(
                "--local",
                help="with --study: where the files of each workload are on this machine, as JSON",
            )

    sub = command(
        "merge",
        _merge,
        "Write one page of several results folders, such as those of several machines",
        "Each folder\nkeeps its answers, figures and rows apart. It needs their tables and figures.",
    )
    sub.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a results folder")
    sub.add_argument(
        "--out",
        type=Path,
        default=Path("merged.html"),
        metavar="FILE",
        help="the page (default: merged.html)",
    )
    sub = command(
        "compare",
        _compare,
        "Compare two results folders: what became faster, slower, better or worse beyond noise",
        "Runs are\npaired if axes, seed, settings, data and hardware are the same. Exits with 1 if in B something is\n"
        "slower or worse, has other losses or no longer completes, else with 0.",
    )
    sub.add_argument("a", type=Path, metavar="A", help="the results folder to compare with")
    sub.add_argument("b", type=Path, metavar="B", help="the results folder that is judged")
    sub.add_argument(
        "--threshold",
        type=float,
        default=1.05,
        metavar="RATIO",
        help="smallest change of a step time that counts (default: 1.05)",
    )
    for kind in ("json", "csv"):
        sub.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write the comparison as {kind}")
    sub = command(
        "status",
        _status,
        "Show the state of every run of a study, and how much is left",
        "It changes nothing and may be called at any time.",
    )
    _add_config(sub)
    sub.add_argument("--json", action="store_true", help="print JSON, for scripts")
    sub.add_argument(
        "--failed",
        action="store_true",
        help="list only runs that failed, were interrupted, or are stale or refused, each with the command that runs it again",
    )
    sub = command(
        "plan",
        _plan,
        "Say what the missing runs of a study will cost, and which to do first on a budget",
        "Time, memory\nand node-hours are learned from records; of what no record tells, nothing is said. It changes\n"
        "nothing.",
    )
    _add_config(sub)
    sub.add_argument("--node-hours", type=_amount, metavar="NUMBER", help="the budget")
    sub.add_argument(
        "--records",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another results folder whose records tell costs; may be repeated",
    )
    forms = sub.add_mutually_exclusive_group()
    for form, text in (
        ("targets", "print only the runs to do first, as targets of Snakemake"),
        (
            "limits",
            "print only time and memory of the missing runs, as lines for `limits` in a cluster's site.yaml",
        ),
        ("json", "print JSON, for scripts"),
        (
            "check",
            "print how far off the estimates are: groups of records are predicted from the others (minutes)",
        ),
    ):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=text)
    sub = command(
        "recommend",
        _recommend,
        "Say on which simulator and layout of this machine a run trains fastest, and how sure that is",
        "Records of\nthis machine tell; where one is missing, short trials of all candidates take turns.",
    )
    sub.add_argument(
        "record",
        help="path of a run's record; its simulator, layout and seed do not count: results/runs/.../metrics.json",
    )
    _add_config(sub)
    sub.add_argument(
        "--minutes",
        type=_amount,
        default=3.0,
        metavar="NUMBER",
        help="trials may take so long; 0: none (default: 3)",
    )
    for name in ("simulators", "layouts"):
        sub.add_argument(
            f"--{name}", metavar="NAMES", default="", help=f"only these {name}, separated by commas"
        )
    sub = command(
        "recover",
        _recover,
        "Clean up after a killed Snakemake, so that the next call continues",
        "It cancels\nthis folder's jobs in SLURM's queue, removes locks, and keeps finished runs\n"
        "from being trained again. Call it on the machine where Snakemake ran.",
    )
    _add_config(sub)
    jobs = sub.add_mutually_exclusive_group()
    jobs.add_argument("--wait", action="store_true", help="let running jobs finish; cancel only pending ones")
    jobs.add_argument(
        "--no-queue",
        action="store_true",
        help="do not ask SLURM, because no job of this folder is in its queue",
    )
    sub = command(
        "schema", _schema, "Print the JSON schema of configs", "Editors use it to complete and check a file."
    )
    sub.add_argument("of", nargs="?", choices=("config", "site"), default="config", help="default: config")

    sub = command(
        "bench",
        _bench,
        "Time simulators, models, layouts and more against each other, in a checkout",
        "`ketscale bench NAME --help` has the options of simulators, models, layouts, cohorts, ranks, dynamics or pulses.",
    )
    # What has a parser of its own is handed over as it is.
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="NAME ...", help="see docs/benchmarks.md")
    command("doctor", _doctor, "Say what this machine can run, and what each missing thing would enable")
    return parser


def _add_config(parser: Any) -> None:
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="the study (default: config.yaml)"
    )


def _amount(text: str) -> float:
    """A number of at least 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of at least 0")
    return value


def _config(path: Path) -> Config:
    """The config in a file, with its kinds of studies: what trains or prepares checks what tables will be refused for."""
    from ketscale import analysis

    return analysis.read(path)


def _settings(options: argparse.Namespace) -> Settings:
    """The settings of the run that a record's path names. Settings that are given must belong to that run."""
    from ketscale.config import Settings
    from ketscale.problems.registry import FAMILIES

    run = grid.Run.parse(options.record)
    if not options.settings:
        return _config(options.config).settings(run)
    settings = Settings.of(_json(options.settings, "--settings"), FAMILIES, "--settings")
    if settings.run != run:
        raise UserError(
            f"--settings belong to {settings.run.path}, not to {run.path}; give the settings of the run in the path"
        )
    return settings


def _json(text: str, option: str) -> dict[str, Any]:
    try:
        value = strict_json.loads(text)
    except ValueError as error:
        raise UserError(f"{option}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{option}: must be a JSON object")
    return value


def _folder(options: argparse.Namespace) -> Path:
    return Path(options.record.removesuffix(grid.RECORD))


def _manifest(options: argparse.Namespace, settings: Settings) -> Path | None:
    """The manifest of the run's data: as given, else in its results folder; None for a family without data."""
    if not settings.family.prepared:
        return None
    if options.features:
        return Path(options.features)
    folder = str(_folder(options)).rstrip("/")
    results = (
        Path(folder.removesuffix(settings.run.folder))
        if folder.endswith(settings.run.folder)
        else Path("results")
    )
    return results / grid.PREPARED.format(workload=settings.run.workload)


def _train(options: argparse.Namespace) -> NoReturn:
    from ketscale.jobs import provenance

    # Before what trains is imported: whatever happens to the sources from now on is none of this run's.
    provenance.taken()
    settings = _settings(options)
    from ketscale.process import THREAD_VARIABLES, end, kept_for_good

    # A run that is started by hand may lack these. Thread pools read them on import; other values are refused later.
    for name in THREAD_VARIABLES:
        os.environ[name] = os.environ.get(name) or str(settings.run.threads)
    with kept_for_good():
        from ketscale.jobs.session import train
        from ketscale.training.loop import Stopped

    try:
        status = train(
            settings,
            _folder(options),
            _manifest(options, settings),
            options.trace,
            options.cohort,
        )
    except Stopped as stopped:
        print(f"ketscale: {stopped}", file=sys.stderr)
        code = 143
    else:
        print(f"{settings.run.folder}: {status}")
        code = 0
    end(code)


def _launch(options: argparse.Namespace) -> int:
    from ketscale.jobs import cohorts, finished, launch, supervise
    from ketscale.process import slurm_job

    run, folder, settings = grid.Run.parse(options.record), _folder(options), options.settings
    # The ranks check them while they start; those of another run are refused before.
    if not settings or _json(settings, "--settings").get("run") != dataclasses.asdict(run):
        settings = _settings(options).text
    if finished.has_copy(folder) and _restored(options, folder):
        print(f"{run.folder}: already finished in this call")
        return 0
    arguments = ["ketscale", "train", options.record, "--settings", settings]
    cohort = None if options.trace else cohorts.of(run)
    for name, value in (("features", options.features), ("trace", options.trace), ("cohort", cohort)):
        if value:
            arguments += [f"--{name}", str(value)]
    environment = launch.environment()
    job = slurm_job()
    if job is not None:
        from ketscale.jobs.slurm import queue

        # Snakemake hides this variable from runs. The lease needs it to see that SLURM has requeued the job.
        environment["SLURM_RESTART_COUNT"] = str(queue.restarts(job) or 0)
    return supervise.run(f"{launch.prefix_here(run)} {shlex.join(arguments)}", folder, environment)


def _restored(options: argparse.Namespace, folder: Path) -> bool:
    """Whether this call has already finished the run; if so, its record is there again."""
    from ketscale.jobs import finished, prepared

    settings = _settings(options)
    return finished.restore(folder, settings, prepared.features_hash(_manifest(options, settings)))


def _workload(options: argparse.Namespace) -> tuple[Workload, Path]:
    """The workload's settings, and the results folder of its config."""
    from ketscale.config import suggestion
    from ketscale.problems.registry import workload_of

    if options.settings:
        given = _json(options.settings, "--settings") | _json(options.local, "--local")
        return workload_of(given, f"workloads.{options.workload}"), Path("results")
    config = _config(options.config)
    if options.workload not in config.workloads:
        raise UserError(
            f"{options.config}: no workload is called {options.workload}{suggestion(options.workload, config.workloads)}"
        )
    return config.workloads[options.workload][1], Path(config.results)


def _fetch(options: argparse.Namespace) -> None:
    from ketscale.problems import fetching

    workload, results = _workload(options)
    fetching.fetch(workload, options.out or results / grid.FETCHED.format(workload=options.workload))


def _prepare(options: argparse.Namespace) -> None:
    from ketscale.jobs import prepared
    from ketscale.problems import fetching
    from ketscale.problems.registry import family_of

    workload, results = _workload(options)
    family = family_of(workload)
    if family.prepare is None:
        raise UserError(f"workloads.{options.workload}: the family {family.name} has no data to prepare")
    fetched = None
    if workload.fetched:
        fetched = fetching.folder_of(
            options.fetched or results / grid.FETCHED.format(workload=options.workload)
        )
    out = options.out or results / grid.PREPARED.format(workload=options.workload)
    # Before they are read: what changes meanwhile is prepared again.
    sources = prepared.digest(workload.sources(), out)
    family.prepare(workload, out, fetched)
    prepared.note(out, sources)
    shared = prepared.shared(out)
    if shared:
        print(
            f"ketscale: {options.workload}: {shared:,} samples of validation and test have something in common with a part "
            "before theirs (docs/own-data.md)",
            file=sys.stderr,
        )


def _study(options: argparse.Namespace) -> tuple[Config, Path]:
    """The config, and its results folder."""
    from ketscale import analysis
    from ketscale.config import load

    given = _json(options.study, "--study") if options.study else load(options.config)
    partial = {"partial": True} if getattr(options, "partial", False) else {}
    local = getattr(options, "local", None)
    if options.study and local:
        analysis.of(given, placed=False)  # so that there are workloads to be placed
        blocks = dict(given["workloads"])
        for name, places in _json(local, "--local").items():
            if name not in blocks or not isinstance(places, dict):
                raise UserError(
                    f"--local: {name} is no workload of the study, or has no JSON object of its files"
                )
            blocks[name] = {**blocks[name], **places}
        given = {**given, "workloads": blocks}
    config = analysis.of({**given, **partial}, placed=not options.study or local is not None)
    return config, Path(config.results)


def _collect(options: argparse.Namespace) -> None:
    from ketscale.analysis import tables

    tables.collect(*_study(options))


def _figures(options: argparse.Namespace) -> None:
    with needed_for("ketscale figures"):
        from ketscale.analysis import figures

    figures.draw(*_study(options))


def _report(options: argparse.Namespace) -> None:
    with needed_for("ketscale report"):
        from ketscale.analysis import report

    report.build(*_study(options))


def _merge(options: argparse.Namespace) -> None:
    with needed_for("ketscale merge"):
        from ketscale.analysis import report

    report.merge(options.folders, options.out)


def _compare(options: argparse.Namespace) -> int:
    from ketscale.analysis import compared

    return compared.run(options.a, options.b, options.threshold, options.json, options.csv)


def _status(options: argparse.Namespace) -> None:
    from ketscale.jobs.status import report
    from ketscale.problems.registry import read_config

    said = report.look(read_config(options.config), options.config, Path())
    print((report.as_json if options.json else report.as_text)(said, options.failed))


def _plan(options: argparse.Namespace) -> None:
    from ketscale.analysis.advice import judge, plan
    from ketscale.jobs.costs import samples
    from ketscale.problems.registry import read_config

    config = read_config(options.config)
    for folder in options.records:
        if not (folder / grid.RUNS).is_dir():
            raise UserError(f"--records {folder}: not a results folder; it has no folder {grid.RUNS}")
    if options.form == "check":
        found = samples.below([Path(config.results), *options.records])
        print(
            f"{len(found)} records, {sum(one.quiet for one in found)} of them of a quiet machine", flush=True
        )
        print(judge.as_text(judge.judge(found)))
        return
    made = plan.make(config, options.config, options.node_hours, options.records, Path())
    forms = {"targets": plan.as_targets, "limits": plan.as_limits, "json": plan.as_json}
    print(forms.get(options.form, plan.as_text)(made))


def _recommend(options: argparse.Namespace) -> None:
    from ketscale.analysis.advice import recommend
    from ketscale.measure import host
    from ketscale.problems.registry import read_config

    only = {
        name[:-1]: [part for part in getattr(options, name).split(",") if part]
        for name in ("simulators", "layouts")
    }
    said = recommend.recommend(
        read_config(options.config),
        grid.Run.parse(options.record),
        60 * options.minutes,
        only,
        host.describe(),
        Path(),
        lambda line: print(f"ketscale: {line}", file=sys.stderr),
    )
    print(recommend.as_text(said))


def _recover(options: argparse.Namespace) -> None:
    from ketscale.jobs.recover import recover
    from ketscale.problems.registry import read_config

    recover(read_config(options.config), options.config, options.wait, not options.no_queue)


def _schema(options: argparse.Namespace) -> None:
    from ketscale.config import published_schema, schema
    from ketscale.jobs.slurm.site import SiteFile
    from ketscale.problems.registry import FAMILIES

    print(json.dumps(published_schema(FAMILIES) if options.of == "config" else schema(SiteFile), indent=1))


def _bench(options: argparse.Namespace) -> None:
    """Hand over to the benchmarks, which are beside `workflow` in a checkout and no part of an installed package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "benchmarks" / "command.py").is_file():
        raise UserError(
            "the benchmarks are no part of the installed package: get a checkout of KetScale's repository, and call "
            "`ketscale bench` of the environment that `make setup` makes there"
        )
    sys.path.insert(0, str(checkout))
    from benchmarks import command

    command.main(options.arguments)


def _doctor(options: argparse.Namespace) -> int:
    from ketscale.jobs.doctor import diagnose

    return diagnose()


if __name__ == "__main__":
    sys.exit(main())
