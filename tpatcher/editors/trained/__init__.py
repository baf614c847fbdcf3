"""Editors that are trained before the first edit: KE, MEND, SERA and SERAC."""
