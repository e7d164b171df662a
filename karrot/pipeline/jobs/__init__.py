"""The jobs: each reads, transforms and writes, and says what it did."""
