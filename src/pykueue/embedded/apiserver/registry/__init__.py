"""Which resources are served, requests to them, and what all parts of the server share."""
