"""What clients learn about the server: API groups, OpenAPI, and aggregated API servers."""
