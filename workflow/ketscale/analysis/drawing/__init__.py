"""What figures share: their inputs, their looks, the ticks of logarithmic axes."""
