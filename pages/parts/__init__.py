"""Shared parts of the screens: state in the URL, the chosen analysis, figures, background tasks."""
