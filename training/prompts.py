"""What the stories are asked to be about: random prompts, from word lists and a few frames.

The words of the probing grammar are named in the prompts so that the models know them; its
sentences are not, and nothing here makes a sentence of the training text by rule. The prompt is
no part of the text.
"""

from __future__ import annotations

import random

from grammars import probing, relative_clauses

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}"

PEOPLE = tuple(sorted(probing.NOUNS)) + tuple(
    sorted({noun for (number, _, _), nouns in relative_clauses.NOUNS.items() for noun in nouns
            if number == relative_clauses.SINGULAR} - set(probing.NOUNS))
)  # fmt: skip
GROUPS = tuple(sorted(plural for plural, _ in probing.NOUNS.values()))
NAMES = tuple(sorted(probing.NAMES))
DEEDS = tuple(
    sorted(
        verb
        for verbs in (
            probing.INTRANSITIVE,
            probing.TRANSITIVE,
            probing.CLAUSAL,
            probing.ASKING,
        )
        for verb in verbs
    )
)
_THINGS = """
apple garden boat kitchen dog cat horse bird letter song book ball river forest castle school market
bread cake window door hat coat box gift picture game train road hill farm tree flower fish storm
snow party birthday secret map key ring clock lamp chair table bed house village town church theater
shop restaurant palace beach mountain bridge piano dress shoe
"""
THINGS = tuple(_THINGS.split())
# How an answer begins, in half of the prompts: part of the text, so that not all begin alike. None
# says anything about the number of what follows.
OPENINGS = (
    *("The", "My", "Our", "Their", "I", "We", "They", "He", "She", "When", "Today", "Every day"),
    *("Every morning", "In the evening", "In the garden", "In the house", "Once upon a time"),
)


def prompt(rng: random.Random) -> str:
    """A prompt in the chat format of the writer, with how the answer begins."""
    person, other = rng.sample(PEOPLE, 2)
    group, others = rng.sample(GROUPS, 2)
    name, deed, thing = rng.choice(NAMES), rng.choice(DEEDS), rng.choice(THINGS)
    now = "in the present tense"
    story, simple = "a short story for children", "Use short, simple sentences"
    frames = (
        f"Tell me {story} about {name}, the {group} and the {thing}. {simple}.",
        f"Tell me {story} about the {person}, the {other} and the {thing}. {simple}.",
        f"Tell me {story} about the {group} and the {person}. {simple} {now}.",
        f"Tell me {story} in which the {group} and the {person} {deed}. {simple} {now}.",
        f"Tell me what the {group} and the {others} do every day. {simple} {now}.",
        f"Tell me what {name} and the {group} do every day. {simple} and the word {deed}.",
        f"Tell me what the {person} does every day with the {thing}. {simple} {now}.",
        f"Tell me {story} in which {name} and the {person} talk about the {thing}. {simple}.",
        f"Tell me what the {person} and the {group} ask and say about the {thing}. {simple}.",
        f"Tell me about your life with the {group} and the {thing}. {simple} {now}.",
    )
    opening = rng.choice(OPENINGS) if rng.random() < 0.5 else ""
    return CHAT.format(rng.choice(frames), opening)


def present(rng: random.Random) -> str:
    """A prompt whose answer tells who does what, in the present tense, with two of the verbs.

    What a person is or does when something is the case is told in the present tense, so half of
    the answers begin with that; who it is, and in which number, the opening says or leaves open.
    """
    person, other = rng.sample(PEOPLE, 2)
    group, others = rng.sample(GROUPS, 2)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    verbs = {**probing.INTRANSITIVE, **probing.TRANSITIVE, **probing.CLAUSAL, **probing.ASKING}
    one, two = (verbs[deed] for deed in rng.sample(DEEDS, 2))
    how = "in the present tense. Use short, simple sentences"
    frames = (
        f"Describe {how} what the {person} does. Use the words {one.third} and {two.third}.",
        f"Describe {how} what the {group} do. Use the words {one.base} and {two.base}.",
        f"Describe {how} a day of {name} and the {group}. Use {one.third} and {one.base}.",
        f"What does the {person} do when the {others} {one.base}? Answer {how}.",
        f"What do the {group} do when the {other} {one.third}? Answer {how}.",
        f"Tell me {how} who {one.third} and who {two.third}: the {person}, {name} or the {other}?",
        f"Tell me {how} why the {person} {one.third} and the {others} {two.base}.",
        f"Tell me {how} about the {group}, the {other} and the {thing}. Use the word {one.third}.",
    )
    openings = (
        f"The {person} is someone who",
        f"The {group} are people who",
        f"When the {person}",
        f"When the {group}",
        f"Every day {name}",
        *("Now he", "Now she", "Now they", "Every day the", "Each of the", "When she is", "If he"),
        *("When they are", "Every morning I", "Today my", "When it", "Often we", "Here the"),
    )
    return CHAT.format(rng.choice(frames), rng.choice(openings) if rng.random() < 0.7 else "")
