"""Node agents: simulated nodes that run pods by annotation."""
