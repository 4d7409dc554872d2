#!/usr/bin/env bash
# Builds the sdist, from it the wheel, installs that with its base dependencies into an empty environment, and uses it
# from an empty folder: version, doctor, a notebook's first lines, one run from its data to its record. The versions
# are those of envs/cpu.lock. PYTHON names the interpreter (default python3.11).
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/ketscale-wheel-XXXXXX")
trap 'rm -rf "$work"' EXIT

cd "$root"
mkdir "$work/source" "$work/elsewhere"
# A copy, so that building neither leaves anything in the checkout nor finds what an earlier build has left there.
tar -c --exclude='*.egg-info' --exclude=__pycache__ pyproject.toml README.md LICENSE NOTICE CITATION.cff \
  workflow/ketscale workflow/snakemake_*_plugin_ketscale | tar -x -C "$work/source"
grep -v '^#' envs/cpu.lock > "$work/constraints.txt"
export PIP_CONSTRAINT=$work/constraints.txt PIP_QUIET=2

echo "- an empty environment"
"${PYTHON:-python3.11}" -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install setuptools

echo "- sdist and wheel"
(cd "$work/source" && "$python" -c 'from setuptools import build_meta; build_meta.build_sdist("..")' > "$work/build.log" 2>&1) \
  || { cat "$work/build.log" >&2; exit 1; }
"$python" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$work" "$work"/ketscale-*.tar.gz
# What the checkout's packages have, the wheel has.
diff <(cd workflow && find ketscale snakemake_*_plugin_ketscale -type f ! -name '*.pyc' | sort) \
  <("$python" -m zipfile --list "$work"/ketscale-*.whl | grep -oE '^(ketscale|snakemake_[a-z]+_plugin_ketscale)/[^ ]*' | sort)

# torch first, by itself: pip then takes the CPU wheel where it is set up to find one. Little of it is used here, and
# Python compiles that when it is imported.
echo "- torch, then the wheel with its base dependencies"
"$python" -m pip install --no-compile "$(grep '^torch==' "$work/constraints.txt")"
"$python" -m pip install --no-compile "$work"/ketscale-*.whl
"$python" -m pip check

cd "$work/elsewhere"
ketscale=$work/venv/bin/ketscale
"$ketscale" --version
"$ketscale" --help > /dev/null
"$ketscale" doctor
# Snakemake looks there for the plugins that its profiles name.
"$python" -c 'import pkgutil; names = {m.name for m in pkgutil.iter_modules() if m.ispkg}; assert {f"snakemake_{kind}_plugin_ketscale" for kind in ("logger", "scheduler")} <= names'
# The benchmarks are no part of it, and it says so.
{ "$ketscale" bench simulators 2>&1 || true; } | grep -q "no part of the installed package: get a checkout"
"$python" "$root/tests/style/packaging/notebook.py"

echo "- two runs, from their data to their records and the trained models"
cp "$root/tests/style/packaging/config.yaml" "$root/tests/style/packaging/own.py" .
runs=$("$python" -c 'from ketscale.problems.registry import read_config
for run in read_config("config.yaml").runs: print("results/runs", run.name, sep="/")')
"$ketscale" prepare eeg-synthetic 2> /dev/null
"$ketscale" try
for run in $runs; do "$ketscale" launch "$run/metrics.json"; done
"$ketscale" status
"$ketscale" plan
"$ketscale" schema > /dev/null

echo "- what needs an extra says which"
"$ketscale" report --config config.yaml 2>&1 | tee said.txt || true
grep -q "pip install 'ketscale\[workflow\]'" said.txt
"$python" - $runs <<'PYTHON'
import json
import sys
from pathlib import Path

import ketscale

for run in sys.argv[1:]:
    record = json.loads((Path(run) / "metrics.json").read_text())
    assert record["status"] == "completed" and record["code"]["commit"] is None, record["code"]
    model = ketscale.load(run, trust=True)
    print(f"accuracy {record['quality']['test']['accuracy']:.2f} after one epoch, with {record['packages']}")
    print(f"{type(model.module).__name__} loads again")
PYTHON
