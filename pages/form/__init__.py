"""The form of a new analysis: its three steps and what they share."""
