"""Second moments of pairs: the engine that is to take the place of the pair tables, beside them.

Columns of pairs (`pair_columns`), their moments by blocks of stimuli (`moments`), the pairs that
are scored (`scored_pairs`), ridge (`ridge`), permutation importance (`importance`), contributions
(`contributions`) and the influence of each stimulus on them (`influence`). Nothing in the program
uses it yet. `python -m benchmarks --only features` measures it beside the pair tables.
"""
