"""Scenarios of `make fire`: every module here that has a function `run` is one. See `tests/fire/scenario.py`."""
