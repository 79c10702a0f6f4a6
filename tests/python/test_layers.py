"""Arrows between the folders of the package point down (docs/architecture.md, folders)."""

import ast
from collections import defaultdict
from pathlib import Path

import prismcore

ROOT = Path(prismcore.__file__).parent
CORE = {"_core", "errors", "__version__"}
MAY_USE = {
    "calibrate": {"comm", "cost", "graph", "profiles", "stitch", "traces"},
    "cli": {
        "calibrate",
        "collect",
        "emulate",
        "exports",
        "graph",
        "measure",
        "profiles",
        "replay",
        "report",
        "routing",
        "spare",
        "stitch",
        "stragglers",
        "traces",
    },
    "collect": {"adapters", "graph", "launch", "profiles", "routing", "rules"},
    "emulate": {"graph", "launch", "profiles", "replay", "routing", "rules"},
    "exports": {"graph", "replay", "report"},
    "launch": {"adapters", "graph", "profiles", "routing", "rules"},
    "measure": {"calibrate", "collect", "graph", "launch", "traces"},
    "rules": {"graph"},
    "report": {"adapters", "calibrate", "emulate", "graph", "profiles", "replay", "spare"},
    "spare": {"adapters", "graph", "replay"},
    "stragglers": {"graph", "replay"},
    "replay": {"graph", "profiles"},
    "traces": {"comm", "graph", "profiles", "replay", "stitch"},
    "stitch": {"graph"},
    "graph": set(),
    "profiles": {"cost"},
    "comm": {"graph", "profiles"},
    "cost": set(),
    "adapters": {"routing"},
    "routing": set(),
    "errors": set(),
}


def arrows():
    """(folder or module of the package) -> those it imports, anywhere in its files."""
    found = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        source = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                names = [base] if base != "prismcore" else [f"prismcore.{a.name}" for a in node.names]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            else:
                continue
            found[source] |= {n.split(".")[1] for n in names if n.startswith("prismcore.")}
        found[source].discard(source)
    return found


def test_arrows_point_down():
    found = arrows()
    leaves = {n for n, used in found.items() if (ROOT / f"{n}.py").is_file() and used <= CORE}
    for source, targets in found.items():
        if source in MAY_USE:
            odd = targets - MAY_USE[source] - CORE - leaves
            assert not odd, f"{source} imports {sorted(odd)}"


def test_there_is_no_circle():
    found = arrows()
    begun: list[str] = []

    def visit(folder):
        assert folder not in begun, f"circle: {' -> '.join([*begun, folder])}"
        begun.append(folder)
        for target in found.get(folder, ()):
            visit(target)
        begun.pop()

    for folder in list(found):
        if folder not in ("__init__", "__main__"):  # the package's names, loaded on first use
            visit(folder)


def test_only_adapters_know_a_trainer_by_name():
    for path in ROOT.rglob("*.py"):
        folder = path.relative_to(ROOT).parts[0]
        tree = ast.parse(path.read_text())
        modules = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert "megatron" not in modules or folder == "adapters", path
