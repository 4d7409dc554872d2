"""Gates of superconducting processors, made by microwave pulses."""
