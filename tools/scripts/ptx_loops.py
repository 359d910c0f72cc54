"""How many bytes a thread of each kernel has on their way from memory, read out of its PTX.

PTX is what the compiler hands to ptxas, which still orders the instructions. It may put an
instruction that reads a loaded value behind later loads, but nothing that others see: so loads are
on their way together until a value of theirs is stored, exchanged, branched on or used as an
address. That is what is counted here, once through the body of a loop: not what the loads of the
next turn add, and not the registers that it takes.
"""

import collections
import re

Function = collections.namedtuple("Function", "name arch block_threads body")
# Of one turn through a loop, per thread: loads and bytes on their way at once, instructions, and
# bytes read and written.
Loop = collections.namedtuple("Loop", "loads bytes_in_flight instructions bytes_moved")

TARGET = re.compile(r"\.target (\w+)")
ENTRY = re.compile(r"\.entry (\w+)\(")
BLOCK = re.compile(r"\.(?:maxntid|reqntid) (\d+)(?:, (\d+))?(?:, (\d+))?")
LABEL = re.compile(r"(\$\w+):")
BRANCH = re.compile(r"(?:@!?%p\d+ )?bra(?:\.uni)?\s+(\$\w+)")
INSTRUCTION = re.compile(r"(?:@!?(%p\d+)\s+)?([^\s;]+)\s*([^;]*)")
REGISTER = re.compile(r"%\w+")
TYPE_BITS = re.compile(r"\.[busf](\d+)$|\.bf16x2$")
# What ends in an effect that others see: there the value must have arrived.
EFFECTS = ("st.", "red.", "atom.", "shfl.", "vote.", "bar.", "match.", "redux.", "mma.", "wgmma.")
NEVER_LOADS = (".param", ".shared", ".local", ".const")


def functions_of(text):
    """The kernels of one or several PTX modules."""
    arch, name, threads, body = "", None, 0, None
    depth = 0  # of blocks within a body: arithmetic of double has registers of its own
    for line in map(str.strip, text.splitlines()):
        if match := TARGET.match(line):
            arch = match[1]
        elif match := ENTRY.search(line):
            name, threads, body = match[1], 0, None
        elif name and (match := BLOCK.match(line)):
            threads = int(match[1]) * int(match[2] or 1) * int(match[3] or 1)
        elif name and body is None and line == "{":
            body = []
        elif name and line in ("{", "}") and (line == "{" or depth > 0):
            depth += 1 if line == "{" else -1
        elif name and line == "}" and body is not None:
            yield Function(name, arch, threads, body)
            name = None
        elif name and body is not None and line and not line.startswith(("//", ".", "{", "}")):
            body.append(line)


def innermost_loops(body):
    """(first, last) of each branch back that has no other one inside."""
    labels = {match[1]: at for at, line in enumerate(body) if (match := LABEL.match(line))}
    loops = [(labels[match[1]], at) for at, line in enumerate(body)
             if (match := BRANCH.match(line)) and labels.get(match[1], at) < at]
    return [loop for loop in loops
            if not any(loop != other and loop[0] <= other[0] and other[1] <= loop[1]
                       for other in loops)]


def bytes_of(opcode):
    match = TYPE_BITS.search(opcode)
    width = int(match[1] or 32) // 8 if match else 0
    vector = re.search(r"\.v(\d)", opcode)
    return width * (int(vector[1]) if vector else 1)


def is_global(opcode):
    return not any(space in opcode for space in NEVER_LOADS)


def measured(lines):
    """What one turn through these lines is."""
    loads = in_flight = most_loads = most_bytes = instructions = moved = 0
    waiting = set()  # registers that hold loaded values, or what was made of them
    for line in lines:
        if LABEL.match(line):
            continue
        instructions += 1
        guard, opcode, operands = INSTRUCTION.match(line).groups()
        registers = REGISTER.findall(operands)
        is_load = opcode.startswith("ld.") and is_global(opcode)
        is_store = opcode.startswith(("st.", "red.", "atom.")) and is_global(opcode)
        results = re.match(r"\s*\{([^}]*)\}|\s*(%\w+)", operands)
        has_result = not opcode.startswith(("st.", "red.", "bra", "bar", "ret"))
        made = set(REGISTER.findall(results[0])) if results and has_result else set()
        read = set(registers) - made | ({guard} if guard else set())
        must_have = opcode.startswith(EFFECTS + ("bra",)) or is_load
        if must_have and read & waiting:
            loads = in_flight = 0
            waiting = set()
        if is_load:
            loads, in_flight = loads + 1, in_flight + bytes_of(opcode)
            most_loads, most_bytes = max(most_loads, loads), max(most_bytes, in_flight)
            waiting |= made
        elif read & waiting:
            waiting |= made
        else:
            waiting -= made
        if is_load or is_store:
            moved += bytes_of(opcode)
    return Loop(most_loads, most_bytes, instructions, moved)


def main_loop(body):
    """The loop that has most on its way, or the code around the loops where that has more."""
    loops = innermost_loops(body)
    inside = {at for first, last in loops for at in range(first, last + 1)}
    around = [line for at, line in enumerate(body) if at not in inside]
    turns = [measured(body[first:last + 1]) for first, last in loops] + [measured(around)]
    return max(turns, key=lambda turn: (turn.bytes_in_flight, turn.instructions))
