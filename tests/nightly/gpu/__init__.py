"""What only a machine with a GPU can show: `check` runs it all in one call, on a bare machine, with the kit beside it."""
