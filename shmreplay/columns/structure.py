"""Structure: the nested dicts, lists, tuples and named tuples of a signature, with column numbers as leaves.

It knows nothing of specs or arrays; `signature` does.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Kind: TypeAlias = str | type[Any]  # "list", "tuple", or the class of a named tuple
NativePlan: TypeAlias = tuple[Any, ...]

# Deeper than any real step. It stops a tree that contains itself, or an attack on the daemon's stack.
MAX_DEPTH = 64


@dataclass(frozen=True)
class LeafNode:
    """One column, by its number."""

    index: int


@dataclass(frozen=True)
class DictNode:
    """A dict: its keys in the signature's order, a child for each."""

    keys: tuple[str, ...]
    children: tuple[Node, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the children."""
        return self.keys


@dataclass(frozen=True)
class SeqNode:
    """A list, tuple or named tuple, with a child for each element."""

    kind: Kind
    children: tuple[Node, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the children: the fields of a named tuple; empty for lists and tuples."""
        return () if isinstance(self.kind, str) else named_fields(self.kind)


Node: TypeAlias = LeafNode | DictNode | SeqNode
AddLeaf: TypeAlias = Callable[[object, str], int]  # (leaf, path) -> column number


def named_fields(kind: object) -> tuple[str, ...]:
    """Returns the field names of a named tuple or of its class; empty for anything else."""
    fields = getattr(kind, "_fields", ())
    return fields if isinstance(fields, tuple) and all(isinstance(field, str) for field in fields) else ()


def child_paths(names: Sequence[str], count: int, path: str) -> list[str]:
    """Returns the path of each child of the node at `path`: `a/b` for keys and fields, `a[0]` for nameless elements."""
    if names:
        return [f"{path}/{name}" if path else name for name in names]
    return [f"{path}[{i}]" for i in range(count)]


def parse(tree: object, add_leaf: AddLeaf, where: str, path: str = "", depth: int = 0) -> Node:
    """Reads a tree depth first; `add_leaf(leaf, path)` is called for each leaf and returns its column number.

    A gymnasium Dict or Tuple space is read as the dict or tuple of its spaces.

    Raises:
        TypeError: a dict key is not a str.
        ValueError: a dict or sequence is empty, a key is "", or the tree is deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"{where}: signature is nested deeper than {MAX_DEPTH} levels; make it flatter")
    spaces = getattr(tree, "spaces", None)
    if isinstance(spaces, (dict, tuple)) and isinstance(tree, (Mapping, Sequence)):
        tree = spaces
    if isinstance(tree, Mapping):
        return _parse_dict(tree, add_leaf, where, path, depth)
    if isinstance(tree, (list, tuple)):
        return _parse_seq(tree, add_leaf, where, path, depth)
    return LeafNode(add_leaf(tree, path))


def _parse_dict(tree: Mapping[Any, object], add_leaf: AddLeaf, where: str, path: str, depth: int) -> DictNode:
    at = f"{where}: signature{f' at {path!r}' if path else ''}"
    if not tree:
        raise ValueError(f"{at} is an empty dict; expected at least one column")
    for key in tree:
        if not isinstance(key, str):
            raise TypeError(f"{at} has the key {key!r}; expected keys of type str")
        if not key:
            raise ValueError(f'{at} has the key ""; expected names that can be read')
    keys = tuple(tree)
    paths = child_paths(keys, len(keys), path)
    children = tuple(parse(tree[key], add_leaf, where, at, depth + 1) for key, at in zip(keys, paths, strict=True))
    return DictNode(keys, children)


def _parse_seq(tree: Sequence[object], add_leaf: AddLeaf, where: str, path: str, depth: int) -> SeqNode:
    if not tree:
        at = f" at {path!r}" if path else ""
        raise ValueError(f"{where}: signature{at} is an empty {type(tree).__name__}; expected at least one column")
    kind: Kind = "list" if isinstance(tree, list) else "tuple"
    if fields := named_fields(tree):
        kind = type(tree)
        _named_tuples[kind.__name__, fields] = kind
    paths = child_paths(fields, len(tree), path)
    children = tuple(parse(child, add_leaf, where, at, depth + 1) for child, at in zip(tree, paths, strict=True))
    return SeqNode(kind, children)


def unflatten(node: Node, values: Sequence[object]) -> Any:
    """Returns the nested structure with `values[i]` in the place of column i."""
    # Fast path: every batch is built here, and most nodes are dicts of leaves.
    if isinstance(node, DictNode):
        return {
            key: values[c.index] if isinstance(c, LeafNode) else unflatten(c, values)
            for key, c in zip(node.keys, node.children)  # noqa: B905  # equal lengths, by construction
        }
    if isinstance(node, LeafNode):
        return values[node.index]
    children = [unflatten(child, values) for child in node.children]
    if isinstance(node.kind, str):
        return children if node.kind == "list" else tuple(children)
    return node.kind._make(children)


def leaf_indices(node: Node) -> Iterator[int]:
    """Yields the column numbers of a node's leaves, depth first."""
    if isinstance(node, LeafNode):
        yield node.index
        return
    for child in node.children:
        yield from leaf_indices(child)


def leaf_paths(node: Node, path: str = "") -> Iterator[str]:
    """Yields the path of each leaf, depth first; "" if the node itself is a leaf."""
    if isinstance(node, LeafNode):
        yield path
        return
    for child, at in zip(node.children, child_paths(node.names, len(node.children), path), strict=True):
        yield from leaf_paths(child, at)


def prune(node: Node, kept: Mapping[int, int]) -> Node | None:
    """Returns the node with only the leaves in `kept`, renumbered by it; None if no leaf is left.

    A named tuple that loses fields becomes another class with the same name.
    """
    if isinstance(node, LeafNode):
        return LeafNode(kept[node.index]) if node.index in kept else None
    children = [prune(child, kept) for child in node.children]
    there = [i for i, child in enumerate(children) if child is not None]
    if not there:
        return None
    left = tuple(child for child in children if child is not None)
    names = tuple(node.names[i] for i in there) if node.names else ()
    if isinstance(node, DictNode):
        return DictNode(names, left)
    if isinstance(node.kind, str) or len(there) == len(children):
        return SeqNode(node.kind, left)
    return SeqNode(_named_tuple(node.kind.__name__, names), left)


def find(node: Node, path: str) -> Node | None:
    """Returns the node at a path such as `observation/camera`, by keys and field names; None if there is none."""
    for name in path.split("/"):
        if isinstance(node, LeafNode) or name not in node.names:
            return None
        node = node.children[node.names.index(name)]
    return node


def native_plan(node: Node) -> NativePlan:
    """Returns the structure as tuples that the native code walks."""
    if isinstance(node, LeafNode):
        return ("leaf", node.index)
    children = tuple(native_plan(child) for child in node.children)
    if isinstance(node, DictNode):
        return ("dict", node.keys, children)
    return ("seq", node.kind, children)


def kind_text(node: Node) -> str:
    """Describes a node in an error text, without its children."""
    if isinstance(node, LeafNode):
        return "one column"
    if isinstance(node, DictNode):
        return f"a dict with the keys {', '.join(map(repr, node.keys))}"
    if isinstance(node.kind, str):
        return f"a {node.kind} of {len(node.children)}"
    return f"a named tuple {node.kind.__name__}({', '.join(node.names)})"


def outline(node: Node, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields path and kind of every inner node, without the keys of dicts, whose order does not matter."""
    if isinstance(node, LeafNode):
        return
    yield path, "a dict" if isinstance(node, DictNode) else kind_text(node)
    for child, at in zip(node.children, child_paths(node.names, len(node.children), path), strict=True):
        yield from outline(child, at)


def to_wire(node: Node) -> list[object]:
    """Returns plain lists for msgpack; `from_wire` is its inverse. Column numbers are implied by the order."""
    if isinstance(node, LeafNode):
        return ["leaf"]
    children = [to_wire(child) for child in node.children]
    if isinstance(node, DictNode):
        return ["dict", list(node.keys), children]
    if isinstance(node.kind, str):
        return [node.kind, [], children]
    return ["namedtuple", [node.kind.__name__, *node.names], children]


def from_wire(wire: object, next_index: Iterator[int], depth: int = 0) -> Node:
    """Remakes a structure from what `to_wire` returned, numbering its columns by `next_index`.

    Raises:
        ValueError: malformed, or deeper than `MAX_DEPTH`.
    """
    match wire:
        case ["leaf"]:
            return LeafNode(next(next_index))
        case [str(kind), [*items], [*children]] if children and depth < MAX_DEPTH:
            names = tuple(name for name in items if isinstance(name, str))
            nodes = tuple(from_wire(child, next_index, depth + 1) for child in children)
            if kind == "dict" and len(items) == len(set(names)) == len(nodes):
                return DictNode(names, nodes)
            if kind in ("list", "tuple") and not items:
                return SeqNode(kind, nodes)
            if kind == "namedtuple" and len(items) == len(names) == len(nodes) + 1:
                return SeqNode(_named_tuple(names[0], names[1:]), nodes)
    raise ValueError(f"signature: malformed structure {wire!r:.100}")


# The classes in which named tuples are rebuilt, by name and fields, since no code is sent between processes. If this
# process has declared a signature with such a class, it is that class, otherwise one made here.
_named_tuples: dict[tuple[str, tuple[str, ...]], type[Any]] = {}


def _named_tuple(name: str, fields: tuple[str, ...]) -> type[Any]:
    if (name, fields) not in _named_tuples:
        make: Callable[..., type[Any]] = collections.namedtuple  # mypy reads only literal fields
        kind = make(name, fields)
        # pickle would look the class up in its module, which does not have it.
        kind.__reduce__ = _reduce_named_tuple  # type: ignore[assignment]
        _named_tuples[name, fields] = kind
    return _named_tuples[name, fields]


def _reduce_named_tuple(value: Any) -> tuple[Any, ...]:
    return _remake_named_tuple, (type(value).__name__, value._fields, tuple(value))


def _remake_named_tuple(name: str, fields: tuple[str, ...], values: tuple[object, ...]) -> Any:
    return _named_tuple(name, fields)._make(values)
