# From records to tidy tables. Required: the records of the runs. Made: tables/*.csv, and beside them
# the config and the stamp.


rule collect:
    """Check every record against the config and the invariants, and write the tables."""
    input:
        records_of_tables,
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
        f"{RESULTS}/{stamp.TABLES}/{stamp.NAME}",
    log:
        f"{RESULTS}/tables/collect.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=PLACES,
    params:
        study=study,
        partial="--partial" if PARTIAL else "",
    shell:
        "ketscale collect --study {params.study:q} --local {resources.places:q} {params.partial} > {log:q} 2>&1"
