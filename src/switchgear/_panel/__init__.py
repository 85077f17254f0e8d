"""A panel: the circuits of one installation with their store, policies and sinks."""
