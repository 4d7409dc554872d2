# The data that all runs of a workload read: fetched by a local rule, the only one that uses the network, and prepared
# once. Required: nothing. Made: features/{workload}/features.json and the folder next to it that it names.


rule fetch:
    """Download a workload's data set or weights, and verify checksums."""
    output:
        study.fetched,
    log:
        f"{study.results}/data/{{workload}}/fetch.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=study.workload_places,
    params:
        settings=study.workload_settings,
    shell:
        "ketscale fetch {wildcards.workload} --settings {params.settings:q} --local {resources.places:q}"
        " --out {output:q} > {log:q} 2>&1"


# Prepared data are next to the manifest, in a folder that is named by its hash, which is unknown in advance, so
# only the manifest is declared as output. It is small, so Snakemake compares its content, not its time. The
# workload's own files are no input but a param, by their names and contents: they may be anywhere on this machine, their
# times say nothing, and in a path of an input, braces would be wildcards.
rule prepare:
    """Convert a workload's data, once, to the form that runs read."""
    input:
        fetched=study.fetched_of,
    output:
        study.features,
    log:
        f"{study.results}/features/{{workload}}/features.log",
    # Before any run, so that runs of all workloads go seed by seed.
    priority: len(study.runs) + 1
    localrule: study.in_job
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **requests.of_features,
        places=study.workload_places,
        host=study.host,
    params:
        settings=study.workload_settings,
        sources=study.workload_sources,
    shell:
        "ketscale prepare {wildcards.workload} --settings {params.settings:q} --local {resources.places:q}"
        " --fetched {input.fetched:q} --out {output:q} > {log:q} 2>&1"
