"""The built-in controllers: Job, garbage collection, namespaces."""
