"""What is measured of a run: time, spans, the host, and the record of it all."""
