# Data that all runs of a workload read: fetched by a local rule, which alone uses the network, and prepared once.
# Required: nothing. Made: features/{workload}/features.json and, beside it, the folder that it names.


rule fetch:
    """Fetch a workload's data set or weights, their sums verified."""
    output:
        FETCHED,
    log:
        f"{RESULTS}/data/{{workload}}/fetch.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=workload_places,
    params:
        settings=workload_settings,
    shell:
        "ketscale fetch {wildcards.workload} --settings {params.settings:q} --local {resources.places:q}"
        " --out {output:q} > {log:q} 2>&1"


# What is prepared is beside the manifest in a folder named by its hash, which nobody knows before it is made; so the
# manifest alone is declared. It is small, and Snakemake compares its content, not its time. A source file may be
# anywhere on this machine, so its time says nothing (ancient) and its folder is no param: only --forcerun reads changed
# data again.
rule prepare:
    """Put a workload's data into the form that runs read: embed images, cut trials, split sentences."""
    input:
        sources=ancient(sources),
        fetched=fetched,
    output:
        FEATURES,
    log:
        f"{RESULTS}/features/{{workload}}/features.log",
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **OF_FEATURES,
        places=workload_places,
        host=HOST,
    params:
        settings=workload_settings,
    shell:
        "ketscale prepare {wildcards.workload} --settings {params.settings:q} --local {resources.places:q}"
        " --fetched {input.fetched:q} --out {output:q} > {log:q} 2>&1"
