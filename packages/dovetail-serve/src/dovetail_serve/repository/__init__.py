"""Which models there are: folders, ``config.toml``, and the plan of each version.

``scan`` lists what a repository holds, ``settings`` reads how a model is to be served, ``plans`` gives the plan of a
version and builds it where the version is an ONNX model. Nothing here runs a model.
"""
