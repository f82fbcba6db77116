"""Sentences about tables that would mislead if they were wrong, and what they are made from."""

import pandas as pd
import pytest

from mlem_core import from_frame, read_csv
from mlem_core.data.added import add_bins, add_feature

OTHER = b"""\
Text,target,Case,freq,note,constant,item
The dog sees a cat.,dog,subject,3.5,x,1,a
The dog sees a cat.,cat,object,2.1,y,1,a
Did she run?,she,subject,4.0,,1,b
"""
MARKED = "sentence;f;g\nl'été;1,5;-\nun œuf;2;x\nla mère;-;y\n".encode("cp1252")
WORDS = from_frame(
    pd.DataFrame(
        {"sentence": ["The dog runs.", "a zxqvk", "a cat"], "word_index": 1, "f": [1, 2, 3]}
    ),
    "words",
)


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        (
            lambda: read_csv(OTHER, name="other.csv").notes,
            "In other.csv 'Text' is the sentence, 'target' says which word is the stimulus and "
            "'constant' has one value only and is no feature.",
        ),
        (
            lambda: read_csv(MARKED, name="mine.csv").notes,
            "mine.csv was read as Windows-1252 text separated by semicolons; numbers have a "
            "decimal comma; '-' is a missing value.",
        ),
        (lambda: add_feature(WORDS, "frequency").notes, "frequency is missing for 1 of 3 stimuli."),
        (
            lambda: add_bins(WORDS, "f", 9).notes,
            "f is in 3 bins, not 9: equal values stay together.",
        ),
    ],
)
def test_what_is_said_of_a_table(notes, sentence):
    assert notes() == (sentence,)
