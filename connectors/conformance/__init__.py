"""A kit that tells which guarantee a sink of one's own really gives. It asks for nothing but the contract."""

from .examine import examine
from .report import Finding, Flaw, Report

__all__ = [
    "Finding",
    "Flaw",
    "Report",
    "examine",
]
