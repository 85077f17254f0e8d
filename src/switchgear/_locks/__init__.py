"""Locks that agents on several hosts share."""
