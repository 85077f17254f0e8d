"""A fleet in virtual time, with and without breakers: what they save, and what they cost."""
