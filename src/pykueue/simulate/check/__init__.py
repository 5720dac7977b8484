"""Checks of queue policies before they are applied: what has no effect, and what goes wrong over time."""
