"""What CI sees of SLURM: one study of four runs to its report, of which one job is requeued."""

from tests.nightly.slurm.disturbed import STEPS, config, ready
from tests.nightly.slurm.project import Project, ask, target, wait_for


def test_four_runs_end_in_a_report_though_one_job_is_requeued(project: Project) -> None:
    # Long enough that a run still trains when its checkpoint has been seen.
    runs = ready(project, config(["cpu-n1r1t1", "mpi-n2r2t1"], steps=2 * STEPS, seeds=2))
    (disturbed,) = (run for run in runs if run.layout == "mpi-n2r2t1" and run.seed == 0)
    with project.running(target(disturbed)) as driver:
        wait_for("a checkpoint", lambda: project.checkpoint(disturbed))
        job = project.job()
        assert job is not None
        ask("scontrol", "requeue", job.id)
        assert driver.wait(400) == 0, project.log
    assert project.record(disturbed)["resumed"] >= 1
    project.snakemake("report")
    assert {project.record(run)["status"] for run in runs} == {"completed"}
    assert (project.folder / "results/report.html").stat().st_size > 0
