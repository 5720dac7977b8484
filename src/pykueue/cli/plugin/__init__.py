"""The commands of Kueue's kubectl plugin, as `pykueue ...` and `kubectl kueue ...`."""
