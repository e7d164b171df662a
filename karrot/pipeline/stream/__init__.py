"""What every streaming query needs: sources of records, checkpoints, and checks of each batch."""
