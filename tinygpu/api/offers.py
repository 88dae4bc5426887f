"""What there is by name: machines, instructions, devices and strategies, ours and those of installed packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tinygpu.api.machines import FAMILIES, PLANS, SHIPPED, family
from tinygpu.devices import Device, device, devices
from tinygpu.extensions import GROUPS, OURS, Clash, Extension, extension, extensions
from tinygpu.language.instruction import Instruction
from tinygpu.ptx import isa
from tinygpu.search.strategies import BRANCH_AND_BOUND, STRATEGIES, check_name, offered


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that can be asked for by its name.

    group  "machines", "instructions", "devices" or "strategies"
    whose  the package that brings it, with its version; "tinygpu" for ours
    what   it in one line
    wrong  why it cannot be used; "" where it can
    """

    group: str
    name: str
    whose: str
    what: str
    wrong: str = ""


def offers(group: str) -> tuple[Offer, ...]:
    """Everything of a group, ours first. Raises ValueError for a group that there is not."""
    if group not in GROUPS:
        raise ValueError(f"there is no list of {group!r}; there are {', '.join(GROUPS)}")
    ours = dict(_ours(group))
    found = [Offer(group, name, OURS, what) for name, what in ours.items()]
    for one in extensions(group):
        try:
            found.append(Offer(group, one.name, one.whose, _described(one)))
        except ValueError as error:
            found.append(Offer(group, one.name, one.whose, "", str(error)))
    return tuple(found)


def warnings(group: str) -> tuple[str, ...]:
    """A sentence for each name of a group that two packages offer, ours included."""
    doors: Mapping[str, Callable[[str], object]] = {
        "machines": family,
        "instructions": lambda name: extension("instructions", name, isa.__all__),
        "devices": device,
        "strategies": check_name,
    }
    found = []
    for name in dict.fromkeys(one.name for one in extensions(group)):
        try:
            doors[group](name)
        except Clash as clash:
            found.append(str(clash))
        except ValueError:  # it is said where it is listed
            pass
    return tuple(found)


def _ours(group: str) -> Iterator[tuple[str, str]]:
    if group == "machines":
        yield from ((name, family(f"{OURS}:{name}").machines[0].summary()) for name in (*SHIPPED, *PLANS))
        yield from ((name, f"each of {', '.join(members)} that is legal") for name, members in FAMILIES.items())
    elif group == "instructions":
        yield from ((name, _first_line(getattr(isa, name))) for name in isa.__all__)
    elif group == "devices":
        yield from ((d.name, _device(d)) for d in devices())
    else:
        yield from ((name, _first_line(strategy)) for name, strategy in STRATEGIES.items())
        yield BRANCH_AND_BOUND, "exact, by bounds of whole regions; ends with a proof"


def _described(one: Extension) -> str:
    """In one line; raises ExtensionError where it cannot be used."""
    name = f"{one.distribution}:{one.name}"
    if one.group == "machines":
        return family(name).machines[0].summary()
    if one.group == "devices":
        return _device(device(name))
    if one.group == "strategies":
        return _first_line(offered(name))
    return _first_line(instruction(one))


def instruction(one: Extension) -> Instruction | type[Instruction]:
    """The instruction, or the class of instructions, that a package offers. Raises ExtensionError."""
    found = one.imported()
    if isinstance(found, Instruction) or (isinstance(found, type) and issubclass(found, Instruction)):
        return found
    raise one.wrong(found, "an instruction or a class of them")


def _device(d: Device) -> str:
    return f"sm_{d.cc}, {d.sm_count} SMs, {d.l2_bytes / 2**20:g} MiB of L2"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]


