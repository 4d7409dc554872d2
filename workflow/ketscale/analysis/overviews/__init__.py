"""Figures of studies of several kinds."""
