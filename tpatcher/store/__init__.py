"""Do I know the disk, and what survives a kill? The durable log of fixes."""
