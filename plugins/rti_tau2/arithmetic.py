"""tau2's tool `calculate` evaluates what it is given, powers included: a guard before it.

`9**9**9` would hold the whole process for ever, and all other sessions with it.
"""

from __future__ import annotations

import ast

MOST_DIGITS = 300
"""Digits of a whole number that a power may come to; a float has no more either."""


def too_large(expression: str) -> bool:
    """Whether an expression holds a power whose value has no business in a shop."""
    if "**" not in expression:
        return False
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body) is None
    except (ArithmeticError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return True


def _value(node: ast.expr) -> float | None:
    """The value; None as soon as a power is too large."""
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return float(ast.literal_eval(node))
    left, right = _value(node.left), _value(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Pow):
        digits = abs(right) * len(f"{abs(left):.0f}")
        return None if digits > MOST_DIGITS else float(left**right)
    if isinstance(node.op, ast.Add | ast.Sub):
        return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    return left / right if isinstance(node.op, ast.Div) else left // right
