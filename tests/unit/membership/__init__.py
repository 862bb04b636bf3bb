"""Membership filters."""
