"""Jobs that benchmarks run in another environment, each a program."""
