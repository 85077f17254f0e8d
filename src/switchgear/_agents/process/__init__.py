"""An agent as a process: started, read as it goes, ended in time, with nothing left behind."""
