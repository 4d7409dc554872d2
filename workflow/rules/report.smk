# From records to tables, from these to figures, and from both to the page. Required: the records of the runs. Made:
# tables/*.csv with the config and a note of what they were made from, figures/, report.html.

# Paths alone: an input that has the mark of an output would be in Snakemake's report twice.
from ketscale.analysis import analysed
from ketscale.analysis.columns import TABLES
from ketscale.analysis.figures import figures_of

MADE = [*(f"{study.results}/tables/{table}.csv" for table in TABLES), f"{study.results}/{analysed.NOTE}"]

# Snakemake's report packs what is there, and what an input function raises does not stop it.
if any(word.partition("=")[0] == "--report" for word in sys.argv) and study.tables_outdated():
    sys.exit("Error: run Snakemake without --report first")


rule tabulate:
    """Check every record against the config and the invariants, and write the tables."""
    input:
        study.records_of_tables,
    output:
        [
            report(
                f"{study.results}/tables/{table}.csv",
                caption="../report/table.rst",
                category="Tables",
                labels={"table": table},
            )
            for table in TABLES
        ],
        f"{study.results}/{analysed.CONFIG_FILE}",
        f"{study.results}/{analysed.NOTE}",
    log:
        f"{study.results}/tables.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=study.places,
    params:
        study=study.text,
        partial="--partial" if study.partial else "",
    shell:
        "ketscale report --study {params.study:q} --local {resources.places:q} {params.partial} --only tables > {log:q} 2>&1"


# Which figures there are depends on what was measured, so their folder is the output.
rule draw:
    """Draw the figures of the tables."""
    input:
        MADE,
    output:
        report(
            directory(f"{study.results}/figures"),
            patterns=["{figure,[^./]+}.svg"],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        f"{study.results}/figures.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=study.places,
    params:
        study=study.text,
        partial="--partial" if study.partial else "",
        captions={figure.name: figure.caption for figure in figures_of(study.config)},
    shell:
        "ketscale report --study {params.study:q} --local {resources.places:q} {params.partial} --only figures > {log:q} 2>&1"


rule write_page:
    """Write the page of the tables and figures."""
    input:
        MADE,
        f"{study.results}/figures",
    output:
        report(
            f"{study.results}/report.html",
            caption="../report/page.rst",
            category="The page",
            labels={"page": "answers, verdicts, figures, tables"},
        ),
    log:
        f"{study.results}/report.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    resources:
        places=study.places,
    params:
        study=study.text,
        partial="--partial" if study.partial else "",
    shell:
        "ketscale report --study {params.study:q} --local {resources.places:q} {params.partial} --only page > {log:q} 2>&1"
