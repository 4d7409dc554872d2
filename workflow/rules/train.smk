# The runs. Required: features/{workload}/features.json, if the workload's data are prepared. Made: tried/{workload}.json,
# for code of the user's, and one folder per run, with the record written last. Its checkpoint/ is not declared as output:
# Snakemake would delete it after a failure, but a retry resumes from it. Nor is the trained model, which a protocol may
# leave out. With a search, the runs of all seeds of a point train with what the records of its trials choose.


# Each run takes minutes, so that a mistake in the user's code is to be found before the first one.
rule try:
    """Take one step of each model on a workload and each simulator, at the smallest size."""
    input:
        features=study.data_of,
    output:
        study.tried,
    log:
        f"{study.results}/tried/{{workload}}.log",
    priority: len(study.runs) + 1
    localrule: study.in_job
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **requests.of_features,
        host=study.host,
    params:
        study=study.text,
    shell:
        "ketscale try {wildcards.workload} --study {params.study:q} --features {input.features:q} --out {output:q}"
        " > {log:q} 2>&1"


rule train:
    """Train one run of the grid and write its record."""
    input:
        **study.conditions,
        features=study.features_of,
    output:
        # Snakemake deletes no output before a job that updates it, and so none of a run that has its result.
        record=update(f"{study.run}/{grid.RECORD}"),
        history=update(f"{study.run}/{grid.HISTORY}"),
    log:
        f"{study.run}/train.log",
    priority: study.priority
    group:
        requests.group
    localrule: study.in_job
    conda:
        "../../envs/ketscale.yaml"
    threads: lambda wildcards: int(wildcards.ranks) * int(wildcards.threads)
    resources:
        **requests.of_train,
        host=study.host_share,
    params:
        settings=study.run_settings,
    # What another run's job of this call has trained is put in its place, the record last. In the shell: a search has thousands
    # of such jobs, and Python alone takes 0.13 s to start.
    shell:
        """
        record={output.record:q}
        folder=${{record%/*}}
        kept=$folder/checkpoint/finished
        if [[ -e $kept/of-${{KETSCALE_CALL:-}} && -e $kept/metrics.json ]]; then
            cd "$kept"
            mv -f *.csv metrics.json ../..
            cd ../..
            rm -r checkpoint/finished
        else
            ketscale launch "$record" --settings {params.settings:q} --features {input.features:q} >{log:q} 2>&1
        fi
        """
