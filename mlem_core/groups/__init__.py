"""Models as members of groups: their mean profiles, what they share, and how training goes on."""
