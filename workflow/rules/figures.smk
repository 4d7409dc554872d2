# Tables to figures and the report. Required: results/tables/*.csv. Made: results/figures/*, results/report.html.


localrules:
    draw,
    write_report,


rule draw:
    """Draw every figure that the study leads to, each with the CSV behind it."""
    input:
        expand("results/tables/{table}.csv", table=TABLES),
    output:
        [
            report(
                f"results/figures/{figure}.svg",
                caption=f"../report/{figure}.rst",
                category="Figures",
                labels={"figure": figure},
            )
            for figure in FIGURES
        ],
        expand(
            "results/figures/{figure}.{format}",
            figure=FIGURES,
            format=[name for name in FORMATS if name != "svg"],
        ),
    log:
        "results/figures/draw.log",
    conda:
        "../../envs/ketscale.yaml"
    params:
        study=STUDY,
    shell:
        "ketscale figures --study {params.study:q} > {log:q} 2>&1"


rule write_report:
    """Build the self-contained page that opens with the answer."""
    input:
        expand("results/tables/{table}.csv", table=TABLES),
        expand("results/figures/{figure}.{format}", figure=FIGURES, format=FORMATS),
    output:
        "results/report.html",
    log:
        "results/report.log",
    conda:
        "../../envs/ketscale.yaml"
    params:
        study=STUDY,
    shell:
        "ketscale report --study {params.study:q} > {log:q} 2>&1"
