"""The second opinion: a command or model of the user's choice is consulted before a stuck agent is stopped."""
