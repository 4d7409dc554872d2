"""Feature vectors: their preparation, and the models that map them to outputs, for all families that have such data."""
