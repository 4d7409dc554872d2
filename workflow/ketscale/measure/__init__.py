"""Measurements of a run: time, spans, the host, and the record of them all."""
