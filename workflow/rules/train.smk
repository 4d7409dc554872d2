# The runs. Required: features/{workload}/features.json, where the workload has data. Made: one folder a run, its record
# written last. Its checkpoint/ is undeclared: Snakemake would delete it after a failure, and a retry resumes from it. So
# is the trained model, which a protocol may leave out.


rule train:
    """Train one run of the grid and write its record."""
    input:
        features=features_of,
    output:
        record=f"{RUN}/{grid.RECORD}",
        history=f"{RUN}/{grid.HISTORY}",
    log:
        f"{RUN}/train.log",
    priority: priority
    group:
        pack
    conda:
        "../../envs/ketscale.yaml"
    threads: lambda wildcards: int(wildcards.ranks) * int(wildcards.threads)
    resources:
        **OF_TRAIN,
        host=host_share,
    params:
        settings=run_settings,
    shell:
        "ketscale launch {output.record:q} --settings {params.settings:q}"
        " --features {input.features:q} > {log:q} 2>&1"
