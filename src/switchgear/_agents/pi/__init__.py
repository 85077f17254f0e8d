"""pi: command line, stream, transcripts and extension."""
