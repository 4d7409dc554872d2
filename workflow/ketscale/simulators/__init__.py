"""Simulators by settings or name: the engines, inside of what times, places and compiles their circuits."""
