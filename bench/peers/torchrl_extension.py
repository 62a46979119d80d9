"""python -m bench.peers.torchrl_extension: builds TorchRL's extension from the sources in its wheel.

The extension in the wheel was built for another release of torch, so it does not load. Prioritised buffers need it.
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile

from torch.utils.cpp_extension import load

NAME = "_torchrl"
SOURCES = ("pybind.cpp", "utils.cpp")


def main() -> int:
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # ninja
    spec = importlib.util.find_spec("torchrl")
    assert spec is not None
    assert spec.origin is not None
    package = pathlib.Path(spec.origin).parent
    shipped = next(package.glob(f"{NAME}.*.so"))
    with tempfile.TemporaryDirectory() as folder:
        load(
            NAME,
            [str(package / "csrc" / source) for source in SOURCES],
            extra_cflags=["-O3"],
            extra_include_paths=[str(package / "csrc")],
            build_directory=folder,
            is_python_module=False,
        )
        shutil.copy(pathlib.Path(folder, f"{NAME}.so"), shipped)
    return 0


if __name__ == "__main__":
    sys.exit(main())
