"""What the kubectl plugin does, as functions over a client, and how it prints objects."""
