"""What figures share: inputs, style, and the ticks of logarithmic axes."""
