"""`python -m mesh`."""

from mesh.cli import main

if __name__ == "__main__":
    main()
