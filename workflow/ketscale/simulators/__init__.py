"""Simulators by settings or name: the engines, wrapped in what times, places and compiles their circuits."""
