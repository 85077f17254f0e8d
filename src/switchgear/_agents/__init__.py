"""Coding agents as programs to start, read and end; nothing here judges what they do."""
