"""What every package uses: errors, types, texts, files, threads; and the program's version."""

VERSION = "0.1.0"
