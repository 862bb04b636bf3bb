"""Writes that happen once: Beam transforms and PyFlink sinks over one engine-neutral core."""

__version__ = "0.1.0"
__all__ = ["__version__"]
