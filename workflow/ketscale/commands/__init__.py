"""The commands of `ketscale`, a module for each group: its options, and what it calls. Imports next to nothing."""
