"""The faces of the mechanism: each turns a piece of the outside world into messages."""
