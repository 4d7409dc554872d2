# The targets. `snakemake --profile profiles/local` trains every run of config.yaml, or of one --configfile instead
# of it, and ends in results/report.html; a run's record is a target of its own.
import os

from snakemake.utils import min_version

min_version("9.19")

# A config file on the command line replaces config.yaml; Snakemake alone would merge the studies of both.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml" if os.path.exists("config.yaml") else workflow.source_path("config.yaml")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/cluster.smk"


# A partial report must not train: it is built by these rules alone, from the records that exist.
if not PARTIAL:

    include: "workflow/rules/features.smk"
    include: "workflow/rules/train.smk"


include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"


# Every record stands here by name: a record deleted under a finished table would otherwise go unnoticed.
rule all:
    input:
        records,
        f"{RESULTS}/report.html",


rule runs:
    input:
        records,


rule figures:
    input:
        expand(f"{RESULTS}/figures/{{figure}}.{{format}}", figure=FIGURES, format=FORMATS),


rule report:
    input:
        records,
        f"{RESULTS}/report.html",


# Snakemake's limit of 100 submissions a second leaves one more timer behind at every job that ends, and each wakes the
# scheduler once a second: after a hundred runs that is a tenth of two cores, beside runs that are being timed. A limit
# that the user gave stands.
onstart:
    begin()
    limiter = workflow.scheduler.job_rate_limiter
    if limiter and (limiter.max_jobs, limiter.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


# The reasons in a line each, after all that Snakemake says about a failed job.
onerror:
    say_why()
    end()


onsuccess:
    end()
