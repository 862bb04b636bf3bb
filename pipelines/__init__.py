"""Programs that run: the `oncesink` command, the demo and jobs to copy. They compose and decide nothing."""
