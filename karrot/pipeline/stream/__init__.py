"""What every streaming query needs: sources of records, checkpoints, checks of each batch, and the quarantine."""
