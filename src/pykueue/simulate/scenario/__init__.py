"""Scenarios of the simulator: what the file says, and what it makes of time, arrivals and run times."""
