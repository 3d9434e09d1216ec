"""ELF files: validation of their headers before the dynamic linker maps them."""
