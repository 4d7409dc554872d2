"""The settings of simulators: of circuits, dynamics and pulses."""
