"""Tests of single modules, without servers."""
