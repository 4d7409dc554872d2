"""EEG: time series of several channels, and models with and without circuits."""
