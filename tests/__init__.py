"""Tests of oncesink. They import the installed package, as a user does."""
