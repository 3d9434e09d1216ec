// What programs that run plans are told and choose: tensors, profiles, options, and the names of element types.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dovetail
{

using Shape = std::vector<int64_t>;

// A part of memory of somebody else's.
template <typename T>
class Span
{
public:
    Span(T* data, size_t size)
        : mData(data)
        , mSize(size)
    {
    }
    T* data() const noexcept
    {
        return mData;
    }
    size_t size() const noexcept
    {
        return mSize;
    }
    T* begin() const noexcept
    {
        return mData;
    }
    T* end() const noexcept
    {
        return mData + mSize;
    }
    T& operator[](size_t index) const
    {
        return mData[index];
    }

private:
    T* mData;
    size_t mSize;
};

// The name that Dovetail has for the elements of a C++ type. Specialise it for types of your own, such as a half:
// template <> struct dovetail::ElementName<my::half> { static constexpr char const* value = "float16"; };
template <typename T>
struct ElementName;

#define DOVETAIL_ELEMENT(Type, Name)                                                                                   \
    template <>                                                                                                        \
    struct ElementName<Type>                                                                                           \
    {                                                                                                                  \
        static constexpr char const* value = Name;                                                                     \
    }
DOVETAIL_ELEMENT(float, "float32");
DOVETAIL_ELEMENT(double, "float64");
DOVETAIL_ELEMENT(bool, "bool");
DOVETAIL_ELEMENT(int8_t, "int8");
DOVETAIL_ELEMENT(int16_t, "int16");
DOVETAIL_ELEMENT(int32_t, "int32");
DOVETAIL_ELEMENT(int64_t, "int64");
DOVETAIL_ELEMENT(uint8_t, "uint8");
DOVETAIL_ELEMENT(uint16_t, "uint16");
DOVETAIL_ELEMENT(uint32_t, "uint32");
DOVETAIL_ELEMENT(uint64_t, "uint64");
DOVETAIL_ELEMENT(std::complex<float>, "complex64");
DOVETAIL_ELEMENT(std::complex<double>, "complex128");
#undef DOVETAIL_ELEMENT

// Where memory is that the program gives.
enum class Memory
{
    kHOST,   // the program's own; copied to and from the device in every run where the tensor lies on one
    kTENSOR, // where the tensor lies (TensorInfo::memory): an address of the device, used in place
};

// An input or output of a plan.
struct TensorInfo
{
    std::string name;
    bool isInput;
    std::string type;        // "float32", "int64", "bfloat16", ...; "seq(...)" and such for what has no address
    int32_t elementBits;     // 0 for what has no address
    std::string format;      // "LINEAR", or how else its elements lie in memory
    bool hasRank;            // false when only a run tells how many dimensions there are
    Shape shape;             // -1 for dimensions that vary
    std::string memory;      // the provider on whose device it lies; empty for the host
    std::string sharesInput; // the input in whose memory this output is written; empty for memory of its own
};

// Least, best and largest shape of an input in a profile.
struct ProfileShapes
{
    Shape min, opt, max;
};

enum class LogLevel : int32_t
{
    kINTERNAL_ERROR,
    kERROR,
    kWARNING,
    kINFO,
    kVERBOSE,
};

struct RuntimeOptions
{
    std::string
        python; // the python of the environment that has Dovetail; empty: DOVETAIL_PYTHON, then the one compiled in
};

struct LoadOptions
{
    bool hostCode{false};  // whether plugin libraries that the plan carries may be loaded: they are code
    bool deviceCode{true}; // whether code for accelerators that it carries may be loaded
    std::vector<std::string> pluginLibraries;                                  // libraries to load before the plan
    std::map<std::string, std::map<std::string, std::string>> providerOptions; // provider -> option -> value
    std::function<void(LogLevel, std::string const&)> log; // gets messages, from any thread; empty: standard error
};

} // namespace dovetail
