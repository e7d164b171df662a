"""Every option, and the settings that a start or a reload runs with."""
