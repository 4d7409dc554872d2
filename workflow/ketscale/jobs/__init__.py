"""What starts, guards, watches and restarts runs."""
