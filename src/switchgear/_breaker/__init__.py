"""The breakers: each translates calls, iterations or tool calls into messages to a circuit."""
