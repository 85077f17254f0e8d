"""The second opinion: a command or model of the user's choice is asked before a stuck agent is stopped."""
