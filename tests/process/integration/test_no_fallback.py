"""Invariant: what is asked for and missing is an error of a line or two, never a slower path, and leaves nothing."""

import json
import subprocess

import pytest

from ketscale.jobs import provenance
from ketscale.training import checkpoint
from tests.process.integration import study
from tests.process.parallel.worlds import environment


def leftovers(folder):
    """What is there but the note that says why the run failed, and the lease that was let go."""
    expected = ("config.yaml", "failure.json")
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "lease"]
    return [path for path in files if path.name not in expected]


@pytest.mark.parametrize(
    "state", [{}, {"resumed": 0, "lost_s": 0.0, "saved": 0.0, "model": {}}], ids=["empty", "of another model"]
)
def test_a_checkpoint_that_holds_no_state_of_the_run_is_an_error_that_names_it(
    tmp_path, digits_features, state
):
    run = study.run()
    settings, features = study.settings(run), json.loads(digits_features.read_text())["hash"]
    key = checkpoint.identify(settings.hash, features, provenance.code_hash())
    checkpoint.save(study.results(tmp_path, run), key, state)
    with study.launch(tmp_path, run, digits_features) as process:
        _, error = process.communicate(timeout=100)
    assert process.returncode != 0 and "Traceback" not in error
    assert (
        f"{checkpoint.path_of(study.results(tmp_path, run), key).name}: not a checkpoint of this run" in error
    )


BAD = {
    "gpu-n1r1t1": "torch sees no GPU here",
    "ddp-n1r1t1": "torch sees no GPU here",
    "mpi-n2r2t1": "asks for 2 node(s)",
}


@pytest.mark.parametrize("where", BAD)
def test_what_is_missing_here_is_an_error_and_leaves_nothing(tmp_path, digits_features, where):
    import torch

    if torch.cuda.is_available() and where != "mpi-n2r2t1":
        pytest.skip("this machine has a GPU")
    run = study.run(where)
    with study.launch(tmp_path, run, digits_features) as process:
        _, error = process.communicate(timeout=100)
    assert process.returncode != 0
    ours = [line for line in error.splitlines() if line.startswith("ketscale: ")]
    assert BAD[where] in ours[0]
    # torchrun adds a traceback of its own whenever a rank ends with an error; ours has none.
    assert where.startswith("ddp") or "Traceback" not in error
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "{run}"], "features.json"),
        (["prepare", "mnist"], "no workload is called mnist"),
    ],
)
def test_bad_calls_are_answered_in_two_lines_and_leave_nothing(tmp_path, arguments, message):
    study.write_config(tmp_path)
    run, other = (study.record(run) for run in (study.run(), study.run(simulator="lightning.qubit")))
    done = subprocess.run(
        ["ketscale", *(a.replace("{run}", run).replace("{other}", other) for a in arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={k: v for k, v in environment().items() if not k.endswith("_NUM_THREADS")},
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and len(done.stderr.splitlines()) <= 2
    assert leftovers(tmp_path) == []


def test_a_trace_of_a_run_that_samples_no_step_is_refused(tmp_path, digits_features):
    with study.launch(
        tmp_path, study.run(protocol="long"), digits_features, "--trace", str(tmp_path / "trace.json")
    ) as process:
        _, error = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "protocol long samples no step" in error
    assert leftovers(tmp_path) == []


def test_another_number_of_threads_than_the_run_has_is_refused(tmp_path, digits_features):
    study.write_config(tmp_path)
    done = subprocess.run(
        ["ketscale", "train", study.record(study.run()), "--features", str(digits_features)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**environment(), "OMP_NUM_THREADS": "7"},
    )
    assert done.returncode == 2
    assert "OMP_NUM_THREADS is 7 but the run has 1 thread(s) a rank" in done.stderr
