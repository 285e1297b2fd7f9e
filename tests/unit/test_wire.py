import subprocess
import sys

CODE = """
import sys
from importlib import import_module
from pkgutil import iter_modules

from turnwise.service import wire

for module in iter_modules(wire.__path__):
    import_module(f"turnwise.service.wire.{module.name}")
packages = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(*sorted({name for name in packages if not name.startswith("_")}))
"""
BESIDE_PYDANTIC = {"turnwise", "annotated_types", "typing_extensions", "typing_inspection"}


def test_the_values_of_the_wire_need_no_package_but_pydantic() -> None:
    command = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{CODE}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    packages = set(found.stdout.split()) - BESIDE_PYDANTIC
    assert {name for name in packages if not name.startswith("pydantic")} == set()
