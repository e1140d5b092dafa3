"""Columns, intervals, nesting and steps. No I/O and no rules live here."""
