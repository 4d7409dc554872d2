# From tables to figures and the report. Required: tables/*. Made: figures/*, report.html.


rule draw:
    """Draw every figure of the config's studies, and write the data of each as CSV."""
    input:
        tables_of_figures,
    output:
        [
            report(
                f"{RESULTS}/figures/{figure}.svg",
                caption=str(Path(RESULTS, "figures", f"{figure}.rst").resolve()),
                category="Figures",
                labels={"figure": figure},
            )
            for figure in FIGURES
        ],
        expand(
            f"{RESULTS}/figures/{{figure}}.{{format}}",
            figure=FIGURES,
            format=[name for name in FORMATS if name != "svg"],
        ),
        f"{RESULTS}/{stamp.FIGURES}/{stamp.NAME}",
    log:
        f"{RESULTS}/figures/draw.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    params:
        study=study,
    shell:
        "ketscale figures --study {params.study:q} > {log:q} 2>&1"


rule write_report:
    """Build the self-contained page that opens with the answers."""
    input:
        files_of_page,
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/page.rst",
            category="The page",
            labels={"page": "answers, verdicts, figures, tables"},
        ),
    log:
        f"{RESULTS}/report.log",
    localrule: True
    conda:
        "../../envs/ketscale.yaml"
    params:
        study=study,
    shell:
        "ketscale report --study {params.study:q} > {log:q} 2>&1"
