"""Circuits from other packages' formats, and KetScale's simulators behind their interfaces."""
