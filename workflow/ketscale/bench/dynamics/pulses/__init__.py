"""`ketscale bench dynamics --problem pulses`: value and gradient of simultaneous X on a chain of fluxoniums."""
