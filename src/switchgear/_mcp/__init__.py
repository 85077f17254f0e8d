"""`switchgear mcp`: a server for agents that want to know why they were refused. It changes nothing."""
