"""A damaged record is put aside, so that the same call trains its run again; one that others contradict stays."""

from pathlib import Path

import pytest

from ketscale import cli
from tests import record_maker as maker

CONFIG = maker.config(one=maker.study(simulator=["default.qubit", "fused"], seed=0))


@pytest.mark.parametrize("damaged", [True, False])
def test_only_what_training_would_mend_is_put_aside(tmp_path, monkeypatch, capsys, damaged):
    monkeypatch.chdir(tmp_path)
    results = Path(CONFIG.results)
    timing = maker.of(CONFIG.settings(CONFIG.runs[0]))["timing"] | {"steps": 2}
    for run, losses in zip(CONFIG.runs, ([1.0, 0.9], [1.0, 0.9 if damaged else 0.5]), strict=True):
        maker.write(results, CONFIG.settings(run), losses=losses, timing=timing)
    record = results / CONFIG.runs[1].path
    if damaged:
        record.write_text(record.read_text().replace("0.9", "0.8"))
    assert cli.main(["report", "--study", CONFIG.text, "--only", "tables"]) == 2
    message = capsys.readouterr().err
    assert "1 of 2 runs cannot be used" in message
    assert ("1 damaged record: renamed to metrics.damaged.json" in message) == damaged
    assert (record.exists(), record.with_name("metrics.damaged.json").exists()) == (not damaged, damaged)
