"""Programs that are made ahead of time: made, saved, loaded, served, and shared between ranks."""
