"""`ketscale bench dynamics`: value and gradient of many control tasks, by our propagators and by other packages."""
