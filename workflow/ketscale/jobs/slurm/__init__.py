"""SLURM: the site file, job groups (packs) of runs, the queue, and a check before the start.

Snakemake's executor submits the jobs; nothing here does. Imports nothing heavy: Snakemake imports it at every start.
"""
