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
    group:
        pack
    conda:
        "../../envs/ketscale.yaml"
    threads: lambda wildcards: int(wildcards.ranks) * int(wildcards.threads)
    resources:
        **TRAIN,
        host=host_share,
    params:
        settings=run_settings,
    shell:
        "ketscale launch {output.record:q} --settings {params.settings:q}"
        " --features {input.features:q} > {log:q} 2>&1"
