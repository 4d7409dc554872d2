"""From records to tables, figures, claims and the report. Light: the Snakefile imports its catalogue."""
