"""OpenCode: command line, stream, transcripts and plugin."""
