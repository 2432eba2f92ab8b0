"""Names that are one: nicknames, and words a letter apart."""

from __future__ import annotations

NICKNAMES = {
    "michael": "mike mick micky", "robert": "bob rob bobby", "william": "bill will billy liam",
    "elizabeth": "liz beth lizzy", "katherine": "kate kathy katie", "james": "jim jimmy jamie",
    "john": "johnny jack", "thomas": "tom tommy", "daniel": "dan danny", "david": "dave",
    "steven": "steve", "stephen": "steve", "christopher": "chris", "matthew": "matt",
    "joseph": "joe joey", "samuel": "sam", "samantha": "sam", "alexander": "alex",
    "anthony": "tony", "benjamin": "ben", "nicholas": "nick", "edward": "ed eddie ted",
    "richard": "rick dick richie", "charles": "charlie chuck", "margaret": "maggie meg peggy",
    "jennifer": "jen jenny", "patricia": "pat patty trish", "rebecca": "becky", "susan": "sue",
    "sarah": "sally sadie", "emma": "em emmy", "andrew": "andy drew", "gregory": "greg",
    "jonathan": "jon", "kenneth": "ken", "lawrence": "larry", "raymond": "ray", "ronald": "ron",
    "timothy": "tim", "victoria": "vicky", "theodore": "ted",
}  # fmt: skip


def nicknames(word: str) -> list[str]:
    """What people called `word` are called for short."""
    return NICKNAMES.get(word, "").split()


def near(a: str, b: str) -> bool:
    """One letter added, lost, changed or swapped (two in long words); the first letter stays."""
    if a == b:
        return True
    if not a or not b or a[0] != b[0] or len(b) < 4 or len(a) < 3 or abs(len(a) - len(b)) > 1:
        return False
    return distance(a, b) <= (1 if len(b) < 8 else 2)


def distance(a: str, b: str) -> int:
    """Optimal string alignment: insertions, deletions, changes, swaps of neighbours."""
    two: list[int] = []
    one = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(one[j] + 1, row[j - 1] + 1, one[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, two[j - 2] + 1)
            row.append(cost)
        two, one = one, row
    return one[-1]
