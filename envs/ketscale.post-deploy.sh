# Snakemake runs this in a new conda environment, from the project's root: it installs the package that the rules call.
set -eu
python -m pip install --no-deps --no-build-isolation --editable .
