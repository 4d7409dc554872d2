"""Circuits, their ansaetze, and simulators that evaluate and differentiate them."""
