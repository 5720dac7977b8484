"""Questions to an engine with a long queue."""
