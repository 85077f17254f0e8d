"""Model APIs: their requests, responses, prices and errors."""
