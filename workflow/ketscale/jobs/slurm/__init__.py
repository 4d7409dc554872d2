"""What a SLURM cluster is told, and what it says: the site file, packs of runs, the queue, and a check before the start.

Snakemake's executor submits the jobs; nothing here does. Light on purpose: every start of Snakemake imports this.
"""
