"""The version of the program, which packages, citations and results name."""

VERSION = "0.1.0"
