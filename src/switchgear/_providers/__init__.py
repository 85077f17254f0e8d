"""What an error of a model provider means, whichever way it arrives."""
