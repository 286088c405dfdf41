"""The step loop as C: a translation of its functions, and of all that they call.

The functions are Python of a plain kind, which is all that is translated: annotated parameters and
results, whole numbers and floats, the classes of `core` and arrays by index, `if`, `while`,
`for ... in range`. A variable keeps one type; whole numbers become floats where it holds both.
Anything else is refused with the place where it stands (TypeError).

Arithmetic is Python's: the same operations in the same order, division by Python's rules (see
`structs.HELPERS`). Whole numbers are 64 bits wide and overflow is not noticed.
"""

import ast
from collections.abc import Mapping

from specsim.sim.c_values import Plain, Unit, ValueWriter, safe
from specsim.sim.structs import FLOAT, HELPERS, INT, NOTHING, Kind, c_type


def translate(
    entries: Mapping[str, Plain], instead: Mapping[Plain, Plain]
) -> tuple[str, list[Plain]]:
    """C source with functions by the names of `entries`, and the functions it was made from.

    instead: functions that are translated in place of others with the same parameters.
    """
    unit = Unit(instead)
    outer = []
    for name, entry in entries.items():
        inside = unit.name_of(entry)
        returns, parameters = unit.signature(entry)
        given = ", ".join(f"{c_type(kind)} {label}" for label, kind in parameters.items())
        call = f"{inside}({', '.join(parameters)});"
        gives = "" if returns == NOTHING else "return "
        outer.append(f"{c_type(returns)} {name}({given}) {{ {gives}{call} }}")
    while unit.waiting:
        _Function(unit.waiting.pop(0), unit).write()
    heads = [f"static {head};" for head in unit.heads]
    source = [HELPERS, unit.declarations.text(), *heads, *unit.bodies, *outer, ""]
    return "\n".join(source), list(unit.names)


class _Function(ValueWriter):
    """One function on its way into C: its statements."""

    def write(self) -> None:
        """Add the function to the unit. Types of variables come from what is assigned to them; as
        that may depend on other variables, until nothing changes."""
        while True:
            known = dict(self.locals)
            self.loops = 0  # so far, which gives their counters names
            body = self.block(self.tree.body, 1)
            if known == self.locals:
                break
        given = ", ".join(f"{c_type(kind)} {safe(n)}" for n, kind in self.parameters.items())
        head = f"{c_type(self.returns)} {self.unit.name_of(self.function)}({given})"
        own = [f"    {c_type(kind)} {safe(name)};" for name, kind in self.locals.items()]
        self.unit.heads.append(head)
        self.unit.bodies.append("\n".join([f"static {head} {{", *own, *body, "}\n"]))

    # --- statements ---------------------------------------------------------------------------

    def block(self, nodes: list[ast.stmt], depth: int) -> list[str]:
        return [line for node in nodes for line in self.statement(node, depth)]

    def statement(self, node: ast.stmt, depth: int) -> list[str]:
        pad = "    " * depth
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                return []
            case ast.Expr(value=value):
                return [f"{pad}{self.value(value)[0]};"]
            case ast.Return(value=None):
                return [f"{pad}return;"]
            case ast.Return(value=ast.expr() as value):
                return [f"{pad}return {self.fitting(value, self.returns)};"]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                return self.assign_several(node, targets, values, pad)
            case ast.Assign(targets=targets, value=value):
                return self.assign(targets, value, pad)
            case ast.AugAssign(target=target, op=op, value=value):
                changed = ast.copy_location(ast.BinOp(target, op, value), node)
                return self.assign([target], changed, pad)
            case ast.If(test=test, body=body, orelse=other):
                out = [f"{pad}if ({self.truth(test)}) {{", *self.block(body, depth + 1)]
                if other:
                    out += [f"{pad}}} else {{", *self.block(other, depth + 1)]
                return [*out, f"{pad}}}"]
            case ast.While(test=test, body=body, orelse=[]):
                inside = self.block(body, depth + 1)
                return [f"{pad}while ({self.truth(test)}) {{", *inside, f"{pad}}}"]
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body, orelse=[]):
                return self.count_through(name, call, body, depth)
            case ast.Break():
                return [f"{pad}break;"]
            case ast.Continue():
                return [f"{pad}continue;"]
        return self.refuse(node, "there is no translation of such a statement")

    def count_through(
        self, name: str, call: ast.Call, body: list[ast.stmt], depth: int
    ) -> list[str]:
        """`for name in range(...)`: the bounds are looked at once, before the first turn."""
        if not (isinstance(call.func, ast.Name) and call.func.id == "range" and len(call.args) < 3):
            self.refuse(call, "a loop goes through range(end) or range(start, end)")
        bounds = [self.whole(arg) for arg in call.args]
        first, last = bounds if len(bounds) == 2 else ("0", bounds[0])
        self.settle(call, name, INT)
        self.loops += 1
        at, end, pad = f"at_{self.loops}", f"end_{self.loops}", "    " * depth
        return [
            f"{pad}for (int64_t {at} = {first}, {end} = {last}; {at} < {end}; {at}++) {{",
            f"{pad}    {safe(name)} = {at};",
            *self.block(body, depth + 1),
            f"{pad}}}",
        ]

    def assign_several(
        self, node: ast.stmt, targets: list[ast.expr], values: list[ast.expr], pad: str
    ) -> list[str]:
        """`a, b = x, y`, one after the other."""
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        met = {n.id for value in values for n in ast.walk(value) if isinstance(n, ast.Name)}
        if not len(names) == len(targets) == len(values) or met & set(names):
            self.refuse(node, "values are assigned to as many variables, which they do not name")
        pairs = zip(targets, values, strict=True)
        return [line for target, value in pairs for line in self.assign([target], value, pad)]

    def assign(self, targets: list[ast.expr], node: ast.expr, pad: str) -> list[str]:
        code, kind = self.value(node)
        if kind == NOTHING:
            self.refuse(node, "it has no value")
        out = []
        if len(targets) > 1:
            out, code = [f"{pad}{{ {c_type(kind)} same = {code};"], "same"
        for target in targets:
            if isinstance(target, ast.Name):
                self.settle(node, target.id, kind)
                place = safe(target.id)
            else:
                place, wanted = self.value(target)
                if wanted != kind and (wanted, kind) != (FLOAT, INT):
                    self.refuse(node, f"a {c_type(kind)} does not fit into a {c_type(wanted)}")
                if not wanted.is_number:
                    self.refuse(node, "only numbers are assigned to fields and elements")
            out.append(f"{pad}{place} = {code};")
        return [*out, f"{pad}}}"] if len(targets) > 1 else out

    def settle(self, node: ast.AST, name: str, kind: Kind) -> None:
        """A variable holds this; whole numbers give way to floats."""
        known = self.parameters.get(name) or self.locals.get(name, kind)
        if {known, kind} == {INT, FLOAT} and name not in self.parameters:
            kind = FLOAT
        elif known != kind and (known, kind) != (FLOAT, INT):
            self.refuse(node, f"{name} is a {c_type(known)} and a {c_type(kind)}")
        self.unit.declarations.meet(kind)
        if name not in self.parameters:
            self.locals[name] = kind
