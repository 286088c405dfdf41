"""Expressions of Python as C, with their types (`to_c` says what is translated, and how)."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import NoReturn, get_type_hints

from specsim.sim.structs import (
    FLOAT,
    INT,
    NOTHING,
    Declarations,
    Kind,
    c_type,
    element_kind,
    kind_of,
    kinds,
)

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: "&&", ast.Or: "||", ast.USub: "-",
}  # fmt: skip
_BY_RULE: dict[type[ast.AST], str] = {ast.FloorDiv: "floor_div", ast.Mod: "floor_mod"}
_RESERVED = {"auto", "double", "long", "short", "signed", "char", "struct", "union", "register"}
_TRUTHS = (ast.Compare, ast.BoolOp)

Code = tuple[str, Kind]
Plain = Callable[..., object]  # a function of Python


class Unit:
    """Functions met so far, and what has been written of them."""

    def __init__(self, instead: Mapping[Plain, Plain]) -> None:
        self.declarations = Declarations()
        self.names: dict[Plain, str] = {}
        self.waiting: list[Plain] = []
        self.heads: list[str] = []
        self.bodies: list[str] = []
        self._instead = instead

    def name_of(self, function: Plain) -> str:
        """The C name of a function, which is translated if it was not yet."""
        function = self._instead.get(function, function)
        if function not in self.names:
            module = function.__module__.rpartition(".")[2]
            self.names[function] = f"{module}_{function.__name__}"
            self.waiting.append(function)
        return self.names[function]

    def signature(self, function: Plain) -> tuple[Kind, dict[str, Kind]]:
        """Result and parameters, as annotated."""
        function = self._instead.get(function, function)
        hints = get_type_hints(function, include_extras=True)
        out = {n: NOTHING if hint is type(None) else kind_of(hint) for n, hint in hints.items()}
        for kind in out.values():
            self.declarations.meet(kind)
        return out.pop("return"), out


class ValueWriter:
    """One function on its way into C: what its variables are, and its expressions."""

    def __init__(self, function: Plain, unit: Unit) -> None:
        assert isinstance(function, FunctionType)
        self.function, self.unit = function, unit
        lines, self.first_line = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        self.returns, self.parameters = unit.signature(function)
        self.locals: dict[str, Kind] = {}

    def refuse(self, node: ast.AST, why: str) -> NoReturn:
        line = self.first_line + getattr(node, "lineno", 1) - 1
        where = f"{inspect.getsourcefile(self.function)}:{line}"
        raise TypeError(f"{where}: `{ast.unparse(node)}` cannot become C: {why}")

    def value(self, node: ast.expr) -> Code:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return _number(number)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Attribute(value=ast.Name(id=module), attr=attr) if isinstance(
                self.function.__globals__.get(module), ModuleType
            ):
                return self.constant(node, getattr(self.function.__globals__[module], attr, None))
            case ast.Attribute(value=inner, attr=attr):
                base, kind = self.value(inner)
                if not kind.is_struct or kind.dims or attr not in kinds(kind.element):
                    self.refuse(node, f"a {c_type(kind)} has no such field")
                return f"{base}->{attr}", kinds(kind.element)[attr]
            case ast.Subscript(value=inner, slice=index):
                return self.element(node, inner, index)
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, left, op, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(!{self.truth(operand)})", INT
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                code, kind = self.value(operand)
                return f"({_OPERATORS[type(op)]}{code})", kind
            case ast.Compare() | ast.BoolOp():
                if isinstance(node, ast.BoolOp) and not all(map(_is_truth, node.values)):
                    self.refuse(node, "`and` and `or` give true or false, of comparisons")
                return self.truth(node), INT
            case ast.IfExp(test=test, body=body, orelse=other):
                (yes, kind), (no, other_kind) = self.value(body), self.value(other)
                return f"({self.truth(test)} ? {yes} : {no})", self.joint(node, kind, other_kind)
            case ast.Call(func=func, args=args, keywords=[]):
                return self.call(node, func, args)
        return self.refuse(node, "there is no translation of such an expression")

    def truth(self, node: ast.expr) -> str:
        """As a condition."""
        match node:
            case ast.BoolOp(op=op, values=values):
                sign = f" {_OPERATORS[type(op)]} "
                return f"({sign.join(self.truth(part) for part in values)})"
            case ast.Compare(left=left, ops=ops, comparators=others):
                parts, pairs = [], zip([left, *others[:-1]], ops, others, strict=True)
                inside = [n for other in others for n in ast.walk(other)]
                if len(ops) > 1 and any(isinstance(n, ast.Call) for n in inside):
                    self.refuse(node, "calls in a chain of comparisons would be made twice")
                for one, how, other in pairs:
                    if type(how) not in _OPERATORS:
                        self.refuse(node, "there is no translation of such a comparison")
                    (a, a_kind), (b, b_kind) = self.value(one), self.value(other)
                    self.joint(node, a_kind, b_kind)
                    parts.append(f"({a} {_OPERATORS[type(how)]} {b})")
                return f"({' && '.join(parts)})" if len(parts) > 1 else parts[0]
        code, kind = self.value(node)
        if not kind.is_number or kind == NOTHING:
            self.refuse(node, "only numbers are true or false")
        return f"({code})"

    def whole(self, node: ast.expr) -> str:
        code, kind = self.value(node)
        if kind != INT:
            self.refuse(node, "a whole number is needed here")
        return code

    def fitting(self, node: ast.expr, wanted: Kind) -> str:
        """A value where one of this type is needed."""
        code, kind = self.value(node)
        if kind != wanted and (wanted, kind) != (FLOAT, INT):
            self.refuse(node, f"a {c_type(wanted)} is needed here, not a {c_type(kind)}")
        return code

    def joint(self, node: ast.expr, one: Kind, other: Kind) -> Kind:
        """The type of either of two values."""
        if one != other and {one, other} != {INT, FLOAT}:
            self.refuse(node, f"a {c_type(one)} and a {c_type(other)} do not go together")
        return one if one == other else FLOAT

    def name(self, node: ast.expr, name: str) -> Code:
        for known in (self.parameters, self.locals):
            if name in known:
                return safe(name), known[name]
        return self.constant(node, self.function.__globals__.get(name))

    def constant(self, node: ast.expr, value: object) -> Code:
        if not isinstance(value, int | float):
            self.refuse(node, "it is no number, parameter or variable that was set before")
        return _number(value)

    def element(self, node: ast.expr, inner: ast.expr, index: ast.expr) -> Code:
        base, kind = self.value(inner)
        if not kind.dims or any(isinstance(part, ast.Call) for part in ast.walk(inner)):
            self.refuse(node, "only arrays in variables and fields have elements")
        places = index.elts if isinstance(index, ast.Tuple) else [index]
        if len(places) > kind.dims or any(isinstance(p, ast.UnaryOp | ast.Slice) for p in places):
            self.refuse(node, "indices count from 0, one for each dimension")
        at = self.whole(places[0])
        for i, place in enumerate(places[1:], 1):
            at = f"({at}) * {base}.shape[{i}] + {self.whole(place)}"
        left = kind.dims - len(places)
        if left == 0:
            found = f"{base}.at[{at}]"
            return (f"(&{found})" if kind.is_struct else found), element_kind(kind)
        for i in range(len(places), kind.dims):
            at = f"({at}) * {base}.shape[{i}]"
        rest = Kind(kind.element, left)
        self.unit.declarations.meet(rest)
        lengths = ", ".join(f"{base}.shape[{i}]" for i in range(len(places), kind.dims))
        return f"(({c_type(rest)}){{{base}.at + {at}, {{{lengths}}}}})", rest

    def arithmetic(self, node: ast.expr, left: ast.expr, op: ast.operator, right: ast.expr) -> Code:
        (a, a_kind), (b, b_kind) = self.value(left), self.value(right)
        kind = self.joint(node, a_kind, b_kind)
        if not kind.is_number:
            self.refuse(node, "arithmetic is done on numbers")
        if isinstance(op, ast.Div):
            return f"((double)({a}) / (double)({b}))", FLOAT
        if type(op) in _BY_RULE and kind == INT:
            return f"{_BY_RULE[type(op)]}({a}, {b})", INT
        sign = _OPERATORS.get(type(op))
        if sign is None:
            self.refuse(node, f"there is no translation of this operator for a {c_type(kind)}")
        return f"({a} {sign} {b})", kind

    def call(self, node: ast.Call, func: ast.expr, args: list[ast.expr]) -> Code:
        known = self.function.__globals__
        match func:
            case ast.Name(id=name) if isinstance(known.get(name), FunctionType):
                called = self.unit.name_of(known[name])
                returns, parameters = self.unit.signature(known[name])
                if len(parameters) != len(args):
                    self.refuse(node, f"{name} has {len(parameters)} parameters, given by place")
                wanted = zip(args, parameters.values(), strict=True)
                given = [self.fitting(arg, kind) for arg, kind in wanted]
                return f"{called}({', '.join(given)})", returns
            case ast.Name(id=name):
                return self.builtin(node, name, args)
        return self.refuse(node, "only functions known by name are called")

    def builtin(self, node: ast.Call, name: str, args: list[ast.expr]) -> Code:
        given = [self.value(arg) for arg in args]
        match name, given:
            case "len", [(code, kind)] if kind.dims:
                return f"{code}.shape[0]", INT
            case "int" | "float", [(code, kind)] if kind.is_number:
                wanted = INT if name == "int" else FLOAT
                return (code if kind == wanted else f"(({c_type(wanted)})({code}))"), wanted
            case "min" | "max", [(code, kind), *others] if others:
                for _, other in others:
                    kind = self.joint(node, kind, other)
                for other_code, _ in others:
                    code = f"{'int' if kind == INT else 'float'}_{name}({code}, {other_code})"
                return code, kind
        return self.refuse(node, "there is no translation of this call")


def _is_truth(node: ast.expr) -> bool:
    """Whether Python, too, gives true or false for it."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, _TRUTHS) or (
        isinstance(node, ast.Constant) and isinstance(node.value, bool)
    )


def safe(name: str) -> str:
    """A variable's name that C has no other use for."""
    return f"{name}_" if name in _RESERVED else name


def _number(value: float) -> Code:
    if isinstance(value, int):
        return f"INT64_C({int(value)})" if abs(value) > 2**31 else f"(int64_t){int(value)}", INT
    if math.isinf(value):
        return ("INFINITY" if value > 0 else "(-INFINITY)"), FLOAT
    return value.hex(), FLOAT
