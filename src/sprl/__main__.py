"""python -m sprl"""

from sprl.cli import main

main()
