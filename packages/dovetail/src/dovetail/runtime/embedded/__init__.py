"""What programs in C++ call through ``dovetail/runtime.hpp``: plans and contexts by numbers and addresses."""
