"""What all calls of AWS share. It imports no client of AWS before the first call."""
