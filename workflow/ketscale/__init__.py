"""KetScale: train hybrid quantum-classical models fast, and measure honestly what pays."""

__version__ = "0.4.0"
