"""What every streaming query needs: sources, checkpoints, accounting, quarantine."""
