"""What verbs draw: tables, pages and live screens."""
