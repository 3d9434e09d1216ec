"""C++ plugin libraries: loaded through the binary interface of ``include/dovetail/abi.h`` and adapted."""
