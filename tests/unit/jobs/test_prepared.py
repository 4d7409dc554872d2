"""Whether data were prepared from the files that the config names now: contents and names decide, not places or times."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ketscale import cli
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs import prepared, records
from ketscale.problems.registry import FAMILIES
from tests import record_maker as maker

TEXT = "One two three\nFour five six\nSeven eight nine\nTen eleven twelve\n"


def on(file):
    """A config of one run on the sentences of a file."""
    settings = maker.settings(one=maker.study())
    settings["workloads"] = {
        "own": {"kind": "sentences", "file": str(file), "seed": 1, "held_out": 1, "split_seed": 0}
    }
    settings["simulators"] |= {
        "closed": {"device": "closed-form", "gradient": "backprop", "batching": "broadcast"}
    }
    axes = {
        "workload": "own", "model": "superposition_transformer", "layers": 1, "simulator": "closed",
        "protocol": "parity", "seed": 0, "batch": 2,
    }  # fmt: skip
    settings["studies"]["one"] = maker.study(**axes) | {"kind": "parity"}
    return settings


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The sentences, prepared from a file, and the record of a run on them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    file = tmp_path / "data/sentences.txt"
    file.write_text(TEXT)
    prepare(file)
    return file


def config(file, **placed):
    return Config.of(on(file), FAMILIES, **placed)


def test_data_that_were_prepared_with_other_settings_are_not_those_of_the_run(project):
    """Snakemake's notes do not matter: a run would train on another split under the name of its own."""
    from ketscale.jobs import started

    arguments = on(project)
    arguments["workloads"]["own"]["split_seed"] = 1
    before, after = config(project), Config.of(arguments, FAMILIES)
    (run,), results = after.runs, Path("results")
    manifest = prepared.manifest(after, results, "own")
    started.read(before.settings(run), manifest)
    with pytest.raises(
        UserError,
        match=r"prepared with other settings of workload own; .* or `ketscale prepare own --config FILE`",
    ):
        started.read(after.settings(run), manifest)
    assert not prepared.outdated(before, results, "own") and prepared.outdated(after, results, "own")
    maker.write(results, after.settings(run), features_hash=prepared.features_hash(manifest))
    assert records.read(after, results).checked[run].state == "stale"


def prepare(file):
    with open("config.yaml", "w") as out:
        json.dump(on(file), out)
    assert cli.main(["prepare", "own"]) == 0


def manifest(tmp_path):
    return tmp_path / "results/features/own/features.json"


def state(file, tmp_path, **placed):
    """What is found of the run, whose record is of the prepared data."""
    of = config(file, **placed)
    (run,) = of.runs
    maker.write(
        tmp_path / "results", of.settings(run), features_hash=prepared.features_hash(manifest(tmp_path))
    )
    return records.read(of, tmp_path / "results").checked[run]


def replaced(file):
    file.write_text(TEXT.replace("One", "Uno"))


def touched(file):
    os.utime(file, ns=(1, 1))


def relocated(file):
    shutil.move(file.parent, file.parent.with_name("elsewhere"))
    return file.parent.with_name("elsewhere") / file.name


def renamed(file):
    return file.rename(file.with_name("other.txt"))


@pytest.mark.parametrize(
    "change, outdated",
    [(touched, False), (relocated, False), (replaced, True), (renamed, True)],
)
def test_records_are_stale_where_content_or_name_of_a_source_changed(project, tmp_path, change, outdated):
    file = change(project) or project
    result = state(file, tmp_path)
    assert result.state == ("stale" if outdated else "completed")
    assert ("source files have changed" in result.why) == outdated
    # What is prepared again is not outdated.
    prepare(file)
    assert state(file, tmp_path).state == "completed"


def test_a_damaged_note_is_no_proof(project, tmp_path):
    manifest(tmp_path).with_name("made_from.json").write_text('{"features": 1}')
    assert state(project, tmp_path).state == "stale"


@pytest.mark.parametrize("gone", ["the source", "the manifest", "places"])
def test_what_is_not_known_refuses_nothing(project, tmp_path, gone):
    if gone == "the source":
        project.unlink()
    elif gone == "the manifest":
        manifest(tmp_path).unlink()
    else:
        replaced(project)
    assert state(project, tmp_path, placed=gone != "places").state == "completed"


def test_a_report_asks_too_where_it_is_told_the_places(project, tmp_path, capsys):
    state(project, tmp_path)
    text = config(project).text
    replaced(project)
    local = json.dumps({"own": {"file": str(project)}})
    assert cli.main(["report", "--study", text, "--local", local]) == 2
    assert "source files have changed" in capsys.readouterr().err
    assert cli.main(["report", "--study", text]) == 0
