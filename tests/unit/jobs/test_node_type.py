"""The type of a cluster's nodes, by which times of several hosts may be compared."""

from pathlib import Path

import pytest
import yaml

from ketscale.jobs import context
from ketscale.jobs.slurm import site
from tests.toys import run_at

LIMITS = {"limits": [{"minutes": 1, "memory_mb": 1000}]}


@pytest.mark.parametrize(
    ("named", "cpu", "gpu"),
    [
        ({"node_type": "icelake", "gpu_node_type": "hopper"}, "icelake", "hopper"),
        (None, None, None),
    ],
)
def test_the_site_file_names_it_for_runs_in_a_job(tmp_path: Path, monkeypatch, named, cpu, gpu) -> None:
    path = tmp_path / "site.yaml"
    if named is not None:
        path.write_text(yaml.safe_dump({**LIMITS, **named}))
    monkeypatch.setattr(site, "PATH", path)
    runs = [run_at(layout) for layout in ("cpu-n1r1t1", "gpu-n1r1t1")]
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert [context.node_type(run) for run in runs] == [None, None]
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert [context.node_type(run) for run in runs] == [cpu, gpu]
