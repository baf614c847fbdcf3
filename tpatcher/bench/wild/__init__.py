"""WILD: a language model edited in one long stream, and asked as people ask (Yang et al. 2025)."""
