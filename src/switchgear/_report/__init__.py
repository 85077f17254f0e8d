"""HTML reports: one file each, which needs no network, no script and no Switchgear to be read."""
