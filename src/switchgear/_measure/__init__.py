"""What an iteration really did: files changed, tests passing. Measured, never claimed."""
