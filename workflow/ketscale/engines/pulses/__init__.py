"""Superconducting processors under microwave pulses: what is evolved, and what is read from the result."""
