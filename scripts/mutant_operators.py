"""The ways in which `mutants.py` breaks a source file, each one small enough to be a typing error.

Not broken: docstrings, annotations, class bodies, `raise` statements, `zip(strict=True)` (which
states what always holds), and the text in f-strings
(the wording of messages is checked by the oracle, word for word, but is not what mutants are for).
"""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of one file. The key has no line number, so that it survives other edits."""

    file: str
    function: str
    line: int
    original: str
    """The lines it touches, before; stripped."""
    mutated: str
    """The same lines, after."""
    source: str
    """The whole file, after."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What an explanation is filed under."""
        return self.file, self.function, self.original, self.mutated


COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil"}
SKIPPED = (ast.JoinedStr, ast.Raise, ast.Delete, ast.arg, ast.Import, ast.ImportFrom)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Every mutant of a source file, in the order of its text."""
    found = [
        _mutant(file, source, function, node, text)
        for function, node, text in _walk(ast.parse(source), "")
    ]
    unique = {(mutant.line, *mutant.key): mutant for mutant in found}
    return sorted(unique.values(), key=lambda mutant: (mutant.line, mutant.mutated))


Edit = tuple[str, ast.expr | ast.stmt, str]


def _walk(node: ast.AST, function: str) -> Iterator[Edit]:
    """All edits inside functions: the function's name, the node to replace, and by what."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _walk(child, f"{function}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            name = f"{function}{child.name}"
            for part in (*child.args.defaults, *child.args.kw_defaults, *child.body):
                if part is not None and not _is_docstring(part):
                    yield from ((name, *edit) for edit in _edits(part))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _edits(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    if isinstance(node, SKIPPED) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return
    if isinstance(node, ast.expr):
        for changed in _expressions(node):
            yield node, f"({ast.unparse(ast.fix_missing_locations(changed))})"
    elif isinstance(node, ast.stmt):
        for text in _statements(node):
            yield node, text
    if isinstance(node, ast.If | ast.While | ast.IfExp) and _is_plain(node.test):
        yield node.test, f"(not {ast.unparse(node.test)})"
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _edits(child)


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARE[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[index] = other()
                yield changed
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.BinOp) and not _is_type_union(node):
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _is_type_union(node: ast.BinOp) -> bool:
    names = {"int", "float", "str", "Detector"}
    return isinstance(node.right, ast.Name) and node.right.id in names


def _is_plain(test: ast.expr) -> bool:
    """Whether the test has no operator that is broken by itself."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp)


def _constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in CALLS:
        changed = copy.deepcopy(node)
        if isinstance(changed.func, ast.Attribute):
            changed.func.attr = CALLS[name]
        else:
            changed.func = ast.Name(CALLS[name])
        yield changed
    for index in range(len(node.keywords) - 1):
        changed = copy.deepcopy(node)
        one, other = changed.keywords[index : index + 2]
        if one.arg and other.arg and ast.dump(one.value) != ast.dump(other.value):
            one.value, other.value = other.value, one.value
            yield changed


def _statements(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None"
    elif isinstance(node, ast.AugAssign):
        other = ARITHMETIC[type(node.op)]()
        yield ast.unparse(ast.AugAssign(node.target, other, node.value))
        yield "pass"
    elif isinstance(node, ast.Assign):
        if any(isinstance(target, ast.Attribute) for target in node.targets):
            yield "pass"
    elif isinstance(node, ast.Return | ast.Expr):
        yield "pass"


def _mutant(file: str, source: str, function: str, node: ast.expr | ast.stmt, text: str) -> Mutant:
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first][: node.col_offset].decode()
    tail = lines[last][node.end_col_offset :].decode()
    changed = head + text + tail
    before = b"".join(lines[:first]).decode()
    after = b"".join(lines[last + 1 :]).decode()
    original = b"".join(lines[first : last + 1]).decode()
    return Mutant(
        file, function, first + 1, original.strip(), changed.strip(), before + changed + after
    )
