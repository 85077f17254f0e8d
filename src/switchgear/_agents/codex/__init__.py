"""Codex: command line, stream, transcripts and hooks."""
