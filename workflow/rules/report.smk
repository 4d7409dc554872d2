# From records to tables, figures and the page. Required: the records of the runs. Made: tables/*.csv with the config,
# figures/, report.html, and the stamp that says what they were made from.


# One process reads the records once. Which figures there are depends on what was measured, so their folder is the output.
rule write_report:
    """Check every record against the config and the invariants, and write the tables, the figures and the page."""
    input:
        records_of_report,
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
        report(
            directory(f"{RESULTS}/figures"),
            patterns=["{figure,[^./]+}.svg"],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        report(
            f"{RESULTS}/report.html",
            caption="../report/page.rst",
            category="The page",
            labels={"page": "answers, verdicts, figures, tables"},
        ),
        f"{RESULTS}/{stamp.NAME}",
    log:
        f"{RESULTS}/report.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=PLACES,
    params:
        study=study,
        partial="--partial" if PARTIAL else "",
        captions={figure.name: figure.caption for figure in figures_of(CONFIG)},
    shell:
        "ketscale report --study {params.study:q} --local {resources.places:q} {params.partial} > {log:q} 2>&1"
