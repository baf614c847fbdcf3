"""Is the method trained before its first edit? KE, MEND, SERA and SERAC."""
