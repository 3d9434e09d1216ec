// What a library of a later binary interface looks like: another version at the start of its table.
extern "C" unsigned const* dovetail_plugin_abi()
{
    static unsigned const table[256]{99, sizeof(table)};
    return table;
}
