"""What the server itself changes and refuses at creation, as every cluster's server does."""
