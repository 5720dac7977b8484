"""The manager: how long a restart takes, and what it costs while nothing happens."""
