"""CPU time of a write in the client."""
