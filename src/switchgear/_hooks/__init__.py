"""Guarding agents from inside: what their hooks say becomes messages, what circuits say a ruling."""
