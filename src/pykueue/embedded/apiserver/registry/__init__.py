"""The resources that are served, requests to them, and what all parts of the server share."""
