"""pykueue's manager and Kueue's in turn, on the same embedded API server."""
