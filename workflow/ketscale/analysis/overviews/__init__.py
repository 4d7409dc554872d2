"""Figures that are about studies of several kinds."""
