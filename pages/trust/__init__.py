"""The screen Trust: intervals and tests, the audit, and claims under other analysis variants."""
