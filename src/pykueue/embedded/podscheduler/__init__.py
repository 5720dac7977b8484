"""Places pods on nodes, one at a time, as the default scheduler does."""
