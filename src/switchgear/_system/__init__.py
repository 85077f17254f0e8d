"""What several packages need of the operating system: clocks, files, locks across forks, threads beside an event loop."""
