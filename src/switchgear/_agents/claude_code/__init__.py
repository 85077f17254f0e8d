"""Claude Code: command line, stream, transcripts and hooks."""
