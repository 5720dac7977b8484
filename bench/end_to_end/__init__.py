"""The whole path through an API server: load, server and manager in processes of their own, in real time."""
