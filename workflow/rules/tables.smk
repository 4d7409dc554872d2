# From records to tidy tables. Required: the records of the runs. Made: tables/*.csv and the config beside them.


rule collect:
    """Check every record against the config and the invariants, and write the tables."""
    input:
        records=records,
        claims=str(LEDGER),
    output:
        [
            report(
                f"{RESULTS}/tables/{table}.csv",
                caption="../report/table.rst",
                category="Tables",
                labels={"table": table},
            )
            for table in TABLES
        ],
        f"{RESULTS}/{CONFIG_FILE}",
    log:
        f"{RESULTS}/tables/collect.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=PLACES,
    params:
        study=study,
        # Other sources: other data, in a partial report too, which prepares none.
        sources=lambda wildcards: {name: digest_of(name) for name in SOURCES},
        partial="--partial" if PARTIAL else "",
        # For a partial report, a record that is deleted changes the tables too.
        present=len(records()) if PARTIAL else "all",
    shell:
        "ketscale collect --study {params.study:q} --local {resources.places:q} {params.partial} > {log:q} 2>&1"
