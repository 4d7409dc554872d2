# The runs. Required: results/features/{workload}/features.json. Made: one folder a run, its record written last.
# Its checkpoint/ is undeclared: Snakemake would delete it after a failure, and a retry resumes from it.


rule train:
    """Train one run of the grid and write its record."""
    input:
        features="results/features/{workload}/features.json",
    output:
        record="results/runs/{workload}/{model}/q{qubits}-l{layers}-b{batch}/{simulator}/{backend}-n{nodes}r{ranks}t{threads}/{protocol}/seed{seed}/metrics.json",
        history="results/runs/{workload}/{model}/q{qubits}-l{layers}-b{batch}/{simulator}/{backend}-n{nodes}r{ranks}t{threads}/{protocol}/seed{seed}/history.csv",
    log:
        "results/runs/{workload}/{model}/q{qubits}-l{layers}-b{batch}/{simulator}/{backend}-n{nodes}r{ranks}t{threads}/{protocol}/seed{seed}/train.log",
    priority: priority
    conda:
        "../../envs/ketscale.yaml"
    threads: lambda wildcards: int(wildcards.ranks) * int(wildcards.threads)
    resources:
        launcher=launcher,
        host=host_share,
        nodes=lambda wildcards: int(wildcards.nodes),
        tasks=tasks,
        cpus_per_task=cpus_per_task,
        mpi=mpi,
        gpu=gpus,
        slurm_extra=exclusive,
    params:
        settings=run_settings,
    shell:
        "{resources.launcher} ketscale train {output.record:q} --settings {params.settings:q}"
        " --features {input.features:q} > {log:q} 2>&1"
