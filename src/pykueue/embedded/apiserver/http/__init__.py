"""The way in over HTTPS: connections, negotiation of media types, encoding of answers."""
