"""Gemini CLI: command line, stream, transcripts and hooks."""
