"""The contract of a problem, and one folder a family."""
