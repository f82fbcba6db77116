"""How the built-in stimulus sets were made: seeded grammars, the same on every machine."""
