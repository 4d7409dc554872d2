"""Starts, guards, watches and restarts runs."""
