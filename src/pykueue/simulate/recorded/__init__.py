"""Recordings of a manager: read, repeated, and made the input of simulations."""
