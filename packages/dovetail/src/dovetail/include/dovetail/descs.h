// Descriptions of tensors as the plugin's headers have them: in place where the layout is that of abi.h, else copied.
#pragma once

#include "abi.h"
#include "plugin.h"
#include "refuse.h"

#include <limits>
#include <vector>

namespace dovetail
{
using namespace nvinfer1;

namespace detail
{

// The older contract has 32 bits for a size.
inline Dims convert(dovetail_dims const& given)
{
    Dims dims{given.nb_dims, {}};
    for (int32_t i = 0; i < Dims::MAX_DIMS; ++i)
    {
        dims.d[i] = static_cast<decltype(+dims.d[0])>(given.d[i]);
        if (dims.d[i] != given.d[i])
        {
            refuse("dimension %d is larger than %d, which the headers of version 8 cannot say", i,
                std::numeric_limits<int32_t>::max());
        }
    }
    return dims;
}

inline PluginTensorDesc convert(dovetail_tensor_desc const& given)
{
    return {convert(given.dims), static_cast<DataType>(given.type), static_cast<TensorFormat>(given.format), given.scale};
}

inline DynamicPluginTensorDesc convert(dovetail_dynamic_desc const& given)
{
    return {convert(given.desc), convert(given.min), convert(given.max), convert(given.opt)};
}

// Descriptions of type T, from an array of the records R.
template <typename T, typename R>
class DOVETAIL_PRIVATE ReceivedDescs
{
public:
    ReceivedDescs(R const* records, int32_t count)
    {
        if (sizeof(T) == sizeof(R))
        {
            mDescs = reinterpret_cast<T const*>(records);
            return;
        }
        for (int32_t i = 0; i < count; ++i)
        {
            mCopies.push_back(convert(records[i]));
        }
        mDescs = mCopies.data();
    }
    ReceivedDescs(ReceivedDescs const&) = delete;

    operator T const*() const noexcept { return mDescs; }

private:
    std::vector<T> mCopies;
    T const* mDescs;
};

using RunDescs = ReceivedDescs<PluginTensorDesc, dovetail_tensor_desc>;
using BuildDescs = ReceivedDescs<DynamicPluginTensorDesc, dovetail_dynamic_desc>;

} // namespace detail
} // namespace dovetail
