"""`switchgear mcp`: a read-only server with which agents look up why they were refused."""
