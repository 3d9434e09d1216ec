// A library without plugins that is linked with one that has some.
extern "C" int initMyPlugins(char const* space);

extern "C" __attribute__((visibility("default"))) int initThroughWrapper(char const* space)
{
    return initMyPlugins(space);
}
