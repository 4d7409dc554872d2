"""Sentences: the prediction of the next word."""
