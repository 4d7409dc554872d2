"""Workloads: data, features, loss and metrics of each task; `catalogue` names them, `build` makes a `Problem`."""
