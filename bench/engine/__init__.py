"""The engine alone, event by event in virtual time: no API server, no clock, no network."""
