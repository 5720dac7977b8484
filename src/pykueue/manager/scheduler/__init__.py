"""The loop around the engine, and what it writes about pending Workloads."""
