# The targets. `snakemake --profile profiles/local` trains every run of config.yaml, or of a --configfile instead of
# it, and ends with results/report.html. The record of each run is a target too.
import os

from snakemake.utils import min_version

min_version("9.19")

# A config file on the command line replaces config.yaml; Snakemake alone would merge the studies of both.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml" if os.path.exists("config.yaml") else workflow.source_path("config.yaml")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# A partial report must not train, so it has only the rules that build it from existing records.
if not study.partial:

    include: "workflow/rules/features.smk"
    include: "workflow/rules/train.smk"


include: "workflow/rules/report.smk"


# Lists every record: otherwise it would go unnoticed that a record was deleted after the tables were made.
rule all:
    input:
        study.records,
        f"{study.results}/report.html",


rule runs:
    input:
        study.records,


rule figures:
    input:
        f"{study.results}/figures",


rule report:
    input:
        study.records,
        f"{study.results}/report.html",


onstart:
    campaign.begin()


onerror:
    campaign.end()


onsuccess:
    campaign.end()
