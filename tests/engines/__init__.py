"""The bindings on their engines."""
