"""One suite for each contract, run for everything that claims to fulfil it."""
