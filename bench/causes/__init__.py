"""CPU time of the manager by cause."""
