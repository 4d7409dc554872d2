"""What runs cost, from the records of others: time, memory and node-hours of a run before it starts.

`records` reads them and says in which respects runs are alike, `law` fits costs and calibrates their intervals, `forecast`
tells what runs will cost. Nothing is told of a run whose model, simulator and backend no record has: no number is made up.
"""

from ketscale.jobs.costs.forecast import Costs, Forecast, Remainder, forecasts, remainder
from ketscale.jobs.costs.law import Interval, between, total

__all__ = ["Costs", "Forecast", "Interval", "Remainder", "between", "forecasts", "remainder", "total"]
