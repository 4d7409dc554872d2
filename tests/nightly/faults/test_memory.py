"""A long training needs no more memory than a short one: half an hour with COUNT=2000 or more, else two minutes."""

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import yaml

from tests.nightly.faults import count
from tests.process.integration import study
from tests.process.parallel.worlds import environment

MINUTES = min(30.0, max(2.0, count(120) / 60))
# After so long all that a training needs is there; in half an hour it may become a tenth more, sooner less.
BEGUN_S = 60.0 * min(1.0, MINUTES / 4)
GROWTH = 0.1 * max(0.4, MINUTES / 30)
PROTOCOL = {
    "precision": "fp32", "timed": False, "learning_rate": 1e-4, "epochs": 100_000_000, "limit_s": 60 * MINUTES,
    "checkpoint_minutes": 0.1,
}  # fmt: skip
AXES = {
    "workload": "flowers", "model": "mlp", "qubits": 0, "layers": 0, "batch": 64, "simulator": "none",
    "backend": "cpu-n1r1t1", "protocol": "endless", "seed": 0,
}  # fmt: skip


def resident(launcher: psutil.Process) -> int:
    """The bytes of the process that trains: the largest that the launcher has started."""
    values = [0]
    for process in launcher.children(recursive=True):
        try:
            values.append(process.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return max(values)


def test_memory_does_not_grow_with_the_epochs(tmp_path: Path) -> None:
    """An epoch is one small step, so that there are as many rows, steps and checkpoints as can be."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "flowers.npz", x=rng.normal(size=(60, 4)), y=np.arange(60) % 3)
    config = {
        "title": "Endless",
        "workloads": {"flowers": {"kind": "rows", "file": "flowers.npz"}},
        "protocols": {"endless": PROTOCOL},
        "studies": {"s": {"kind": "accuracy", "question": "Does it end?", "axes": AXES}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    subprocess.run(["ketscale", "prepare", "flowers"], cwd=tmp_path, env=environment(), check=True)
    names = {name: value for name, value in AXES.items() if name not in ("qubits", "layers", "backend")}
    record = study.record(study.run(**names, size="q0-l0"))
    launcher = psutil.Popen(
        ["ketscale", "launch", record, "--features", "results/features/flowers/features.json"],
        cwd=tmp_path,
        env=environment(),
    )
    start, first, most = time.monotonic(), 0, 0
    while launcher.poll() is None:
        now = resident(launcher)
        if time.monotonic() - start < BEGUN_S:
            first = now
        most = max(most, now)
        time.sleep(0.2)
    assert launcher.returncode == 0 and first
    content = json.loads((tmp_path / record).read_text())
    assert content["status"] == "timed_out"
    told = f"{first / 2**20:.1f} MiB after {BEGUN_S:g} s, {most / 2**20:.1f} MiB in all, {content['timing']['steps']} steps"
    print(told)
    assert most <= (1 + GROWTH) * first, told
