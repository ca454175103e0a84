"""Tables in README.md and docs/ that come from records: what stands between

    <!-- sprl show table2 --ran --format markdown --store results/records -->
    <!-- end -->

is that command's output, its title left out and its headings in bold.

    python docs/render.py            # write them anew
    python docs/render.py --check    # exit with 1 if one is not what the records say; continuous integration does
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- sprl (show .*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def output(words: str) -> str:
    command = [sys.executable, "-m", "sprl", *shlex.split(words)]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\A# .*\n", "", text)
    return re.sub(r"^## (.*)$", r"**\1**", text, flags=re.MULTILINE).strip() + "\n"


def rendered(text: str) -> str:
    return BLOCK.sub(lambda block: f"{block[1]}\n{output(block[2])}\n{block[4]}", text)


if __name__ == "__main__":
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        new = rendered(text)
        if new != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new)
    verb = "differ from the records" if "--check" in sys.argv else "rendered anew"
    print(f"{', '.join(stale)}: {verb}" if stale else "all tables are what the records say")
    sys.exit(bool(stale) and "--check" in sys.argv)
