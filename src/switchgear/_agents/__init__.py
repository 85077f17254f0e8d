"""Coding agents as programs to start, read and end; nothing here evaluates what they do."""
