"""Basics for every package: errors, types, text, threads."""
