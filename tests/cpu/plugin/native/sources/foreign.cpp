// What a library looks like from outside that was built against NVIDIA's headers: it exports creators with virtual
// tables of another binary interface, and needs functions of the library that those headers belong to.
#include <cstdint>

namespace nvinfer1
{
class IPluginCreatorInterface
{
public:
    virtual char const* getInterfaceKind() const noexcept { return "PLUGIN CREATOR_V3ONE"; }
};
} // namespace nvinfer1

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count)
{
    static nvinfer1::IPluginCreatorInterface creator;
    static nvinfer1::IPluginCreatorInterface* const creators[]{&creator};
    count = 1;
    return creators;
}

#ifdef NEEDS_LIBRARY
// What REGISTER_TENSORRT_PLUGIN of those headers calls while the library is loaded.
extern "C" void* getPluginRegistry();
static void* const gRegistry = getPluginRegistry();
extern "C" __attribute__((visibility("default"))) void* registryOf() { return gRegistry; }
#endif
