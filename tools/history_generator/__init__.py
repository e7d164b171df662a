"""Days of simulated history: the archive that a service would have written, and the incidents planted in it."""
