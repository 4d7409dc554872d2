"""Tables of features: numbers that describe each sample, and a class or numbers to predict."""
