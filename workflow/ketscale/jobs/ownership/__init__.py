"""Who trains a run, who waits for it or for the host, and whether this call of Snakemake has finished it already."""
