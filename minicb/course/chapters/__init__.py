"""The exercises of each chapter: `chNN.py` holds a `CHAPTER`. How to write one: `notebooks/_source/README.md`."""
