"""Shell text to the simple commands in it, without running any."""
