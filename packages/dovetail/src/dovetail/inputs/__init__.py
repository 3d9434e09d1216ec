"""What a model is run on: one reader for everything that people have, shared by commands, calibration and serving.

``open_inputs`` reads texts such as ``x=16000``, ``x:photo.jpg``, ``x:uniform(0,255)``, ``inputs.npz``, a folder or
``loader.py:load_data``, and gives one sample or several; what nobody gave is made up. No file is trusted: sizes are
bounded before memory is taken, and nothing in a file is code, except the loader, which is the user's own.
"""

from __future__ import annotations
