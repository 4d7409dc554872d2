# The runs. Required: features/{workload}/features.json, if the workload's data are prepared. Made: one folder per
# run, with the record written last. Its checkpoint/ is not declared as output: Snakemake would delete it after a
# failure, but a retry resumes from it. Nor is the trained model, which a protocol may leave out.


rule train:
    """Train one run of the grid and write its record."""
    input:
        features=features_for,
    output:
        record=f"{RUN}/{grid.RECORD}",
        history=f"{RUN}/{grid.HISTORY}",
    log:
        f"{RUN}/train.log",
    priority: priority
    group:
        pack if ASKED else None
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
