"""The outside world: stores and sinks. Importing this loads no engine and no driver."""
