"""What runs cost, from the records of others: time, memory and node-hours of a run before it starts.

`samples` reads records, `features` says in which respects runs are alike, `regression` fits, `model` puts numbers and
intervals together, and `forecast` adds them up over runs. Nothing here is known of a run whose model, simulator and
backend no record has: no number is made up.
"""
