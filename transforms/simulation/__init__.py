"""Simulations: the real gate in virtual time, one I/O step at a time, through schedules that a seed decides.

Needs greenlet: `pip install 'oncesink[simulation]'`.
"""

from .report import Report, Told
from .simulate import PromiseBroken, simulate
from .source import Delivery

__all__ = ["Delivery", "PromiseBroken", "Report", "Told", "simulate"]
