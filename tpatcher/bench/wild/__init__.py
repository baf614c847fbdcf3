"""Do I ask as people ask? WILD: a model edited in one long stream (Yang et al. 2025)."""
