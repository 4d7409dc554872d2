"""Sentences: predicting the next word."""
