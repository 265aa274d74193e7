"""The operators on a finite MDP in exact fractions, one state and action at a time."""

from fractions import Fraction


def means(laws):
    return {pair: sum(z * p for z, p in law.items()) for pair, law in laws.items()}


def optimal(table, laws, gamma):
    """T*η with the first of equal actions. table {s: {a: [(p, r, s' or None)]}}, laws {(s, a): {atom: probability}}."""
    q = means(laws)
    after = {}
    for s, offer in table.items():
        for a, outcomes in offer.items():
            law = {}
            for p, r, then in outcomes:
                if then is None:
                    later = {Fraction(0): Fraction(1)}
                else:
                    actions = list(table[then])
                    later = laws[then, max(actions, key=lambda action: (q[then, action], -actions.index(action)))]
                for z, chance in later.items():
                    law[r + gamma * z] = law.get(r + gamma * z, 0) + p * chance
            after[s, a] = {z: p for z, p in law.items() if p}
    return after
