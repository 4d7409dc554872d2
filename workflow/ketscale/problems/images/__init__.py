"""Images: features of a frozen network, and a classifier with a circuit."""
