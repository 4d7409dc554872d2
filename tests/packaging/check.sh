#!/usr/bin/env bash
# Builds the sdist, from it the wheel, installs that with its base dependencies into an empty environment, and uses it
# from an empty folder: version, doctor, a notebook's first lines, one run from its data to its record. The versions
# are those of envs/cpu.lock. PYTHON names the interpreter (default python3.11).
set -euo pipefail
unset PYTHONPATH PYTHONHOME
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/ketscale-wheel-XXXXXX")
trap 'rm -rf "$work"' EXIT

cd "$root"
mkdir "$work/source" "$work/elsewhere"
# A copy, so that building neither leaves anything in the checkout nor finds what an earlier build has left there.
tar -c --exclude='*.egg-info' --exclude=__pycache__ pyproject.toml README.md LICENSE NOTICE CITATION.cff \
  workflow/ketscale | tar -x -C "$work/source"
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
# What the checkout's package has, the wheel has.
diff <(cd workflow && find ketscale -type f ! -name '*.pyc' | sort) \
  <("$python" -m zipfile --list "$work"/ketscale-*.whl | grep -o '^ketscale/[^ ]*' | sort)

# torch first, by itself: pip then takes the CPU wheel where it is set up to find one.
echo "- torch, then the wheel with its base dependencies"
"$python" -m pip install "$(grep '^torch==' "$work/constraints.txt")"
"$python" -m pip install "$work"/ketscale-*.whl
"$python" -m pip check

cd "$work/elsewhere"
ketscale=$work/venv/bin/ketscale
"$ketscale" --version
"$ketscale" --help > /dev/null
"$ketscale" doctor
"$python" "$root/tests/packaging/notebook.py"

# --- One run, from its data to its record. Issue 14 makes one command of the two that make features, and puts the
# --- config's schema into the package, so that `--config` takes the place of `--settings` here.
echo "- one run"
cp "$root/tests/packaging/config.yaml" config.yaml
mapfile -t run < <("$python" - <<'PYTHON'
import yaml
from ketscale import grid

study = yaml.safe_load(open("config.yaml"))
(run,) = grid.runs(study)
print(run.path, grid.canonical(grid.resolve(study, run)), grid.canonical(study["workloads"]["digits"]), sep="\n")
PYTHON
)
folder=results/features/digits
"$ketscale" features pretrain digits --settings "${run[2]}" --out $folder/weights.safetensors 2> /dev/null
"$ketscale" features compute digits --settings "${run[2]}" --weights $folder/weights.safetensors --out $folder/features.json
"$ketscale" launch "${run[0]}" --settings "${run[1]}"
# --- End of what issue 14 changes.
"$python" - "${run[0]}" <<'PYTHON'
import sys
from pathlib import Path
from ketscale.measure import records

record = records.read(Path(sys.argv[1]))
assert record["status"] == "completed" and record["code"]["commit"] is None, record["code"]
print(f"accuracy {record['quality']['test']['accuracy']:.2f} after one epoch, with {record['packages']}")
PYTHON
