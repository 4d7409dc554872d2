"""What runs cost, from the records of others: time, memory and node-hours of a run before it starts.

`records` reads them and says in which respects runs are alike, `model` learns and puts numbers and intervals together, and
`forecast` adds them up over runs. Nothing is told of a run whose model, simulator and backend no record has: no number is
made up.
"""

from ketscale.jobs.costs.forecast import Costs, Forecast, missing, total
from ketscale.jobs.costs.interval import Interval, between

__all__ = ["Costs", "Forecast", "Interval", "between", "missing", "total"]
