"""The account of a folder, by a stand-in that answers as sacct of SLURM 22.05 does."""

import os

from ketscale.jobs.slurm import accounting

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_every_attempt_of_this_folders_jobs_counts(tmp_path, monkeypatch):
    elsewhere, link = tmp_path / "other", tmp_path / "link"
    link.symlink_to(tmp_path)
    lines = (
        f"3600|2|{UUID}|{tmp_path}",
        f"1800|1|{UUID}|{link}",
        # Never started; another folder's; no job of Snakemake's.
        f"0|0|{UUID}|{tmp_path}",
        f"3600|4|{UUID}|{elsewhere}",
        f"3600|4|mine|{tmp_path}",
    )
    (tmp_path / "sacct").write_text("#!/bin/sh\ncat <<'E'\n" + "\n".join(lines) + "\nE\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert accounting.of_folder(tmp_path) == accounting.Account(2, 2.5)


def test_without_a_cluster_there_is_none(tmp_path):
    assert accounting.of_folder(tmp_path) is None
