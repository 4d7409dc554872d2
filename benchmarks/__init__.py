"""Benchmarks: cases x subjects -> rows, one file each over one runner. A part of the checkout, not of the package.

`ketscale bench NAME` runs one; `command.py` has the list.
"""
