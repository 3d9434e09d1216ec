// A custom layer in C++ with INT8 inputs and outputs: the maximum over windows of each plane, on the CPU.
//
// X (N, C, H, W) becomes Y (N, C, P, Q). Tensors are linear and of FP32, FP16, BF16, FP8 or INT8, the output of the type
// of the input. INT8 tensors have scales: a number stands for itself times the scale of its tensor.
#include "example_plugin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

using namespace nvinfer1;

namespace
{

// A number with a sign, so many bits of exponent and so many of mantissa; infinities follow the largest number.
template <typename Bits, int kEXPONENT, int kMANTISSA>
float decode(Bits bits)
{
    int32_t const bias = (1 << (kEXPONENT - 1)) - 1;
    int32_t const exponent = bits >> kMANTISSA & ((1 << kEXPONENT) - 1);
    int32_t const mantissa = bits & ((1 << kMANTISSA) - 1);
    float const size = exponent ? std::ldexp(static_cast<float>(mantissa + (1 << kMANTISSA)), exponent - bias - kMANTISSA)
                                : std::ldexp(static_cast<float>(mantissa), 1 - bias - kMANTISSA);
    return bits >> (kEXPONENT + kMANTISSA) & 1 ? -size : size;
}

template <typename T>
float asIs(T value)
{
    return static_cast<float>(value);
}

class PoolPlugin : public ExamplePlugin<PoolPlugin>
{
public:
    static constexpr char const* kNAME = "Pool";

    static PoolPlugin* create(PluginFieldCollection const& fc)
    {
        PoolPlugin made;
        readField(fc, "window", PluginFieldType::kINT32, made.mWindow);
        readField(fc, "stride", PluginFieldType::kINT32, made.mStride);
        readField(fc, "padding", PluginFieldType::kINT32, made.mPadding);
        bool const isValid
            = made.mWindow > 0 && made.mStride > 0 && made.mPadding >= 0 && made.mPadding < made.mWindow;
        return isValid ? new PoolPlugin{made} : nullptr;
    }

    static std::vector<PluginField> fieldNames()
    {
        return {{"window", nullptr, PluginFieldType::kINT32, 1}, {"stride", nullptr, PluginFieldType::kINT32, 1},
            {"padding", nullptr, PluginFieldType::kINT32, 1}};
    }

    std::vector<PluginField> fields() const
    {
        return {{"window", &mWindow, PluginFieldType::kINT32, 1}, {"stride", &mStride, PluginFieldType::kINT32, 1},
            {"padding", &mPadding, PluginFieldType::kINT32, 1}};
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder& exprBuilder) noexcept override
    {
        if (nbInputs != 1 || inputs[0].nbDims != 4)
        {
            return 1;
        }
        outputs[0] = inputs[0];
        for (int32_t axis : {2, 3})
        {
            // (size + 2 * padding - window + stride) / stride
            auto const* margin = exprBuilder.constant(2 * mPadding - mWindow + mStride);
            auto const* padded = exprBuilder.operation(DimensionOperation::kSUM, *inputs[0].d[axis], *margin);
            auto const* stride = exprBuilder.constant(mStride);
            outputs[0].d[axis] = exprBuilder.operation(DimensionOperation::kFLOOR_DIV, *padded, *stride);
        }
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t, int32_t) noexcept override
    {
        auto const& desc = inOut[pos].desc;
        bool const isKnown = desc.type == DataType::kFLOAT || desc.type == DataType::kHALF
            || desc.type == DataType::kBF16 || desc.type == DataType::kFP8 || desc.type == DataType::kINT8;
        return desc.format == PluginFormat::kLINEAR && isKnown && desc.type == inOut[0].desc.type;
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs,
        void* const* outputs, void*, cudaStream_t) noexcept override
    {
        auto const &in = inputDesc[0].dims, &out = outputDesc[0].dims;
        switch (inputDesc[0].type)
        {
        case DataType::kFLOAT: return pool<float, asIs>(inputs[0], in, outputs[0], out);
        case DataType::kHALF: return pool<uint16_t, decode<uint16_t, 5, 10>>(inputs[0], in, outputs[0], out);
        case DataType::kBF16: return pool<uint16_t, decode<uint16_t, 8, 7>>(inputs[0], in, outputs[0], out);
        case DataType::kFP8: return pool<uint8_t, decode<uint8_t, 4, 3>>(inputs[0], in, outputs[0], out);
        case DataType::kINT8:
            pool<int8_t, asIs>(inputs[0], in, outputs[0], out);
            return rescale(static_cast<int8_t*>(outputs[0]), out, inputDesc[0].scale, outputDesc[0].scale);
        default: return 1;
        }
    }

private:
    // The largest element of each window, by its value; elements are copied as they are.
    template <typename T, float (*kVALUE)(T)>
    int32_t pool(void const* input, Dims const& in, void* output, Dims const& out) const
    {
        auto const* x = static_cast<T const*>(input);
        auto* y = static_cast<T*>(output);
        for (int64_t plane = 0; plane < in.d[0] * in.d[1]; ++plane, x += in.d[2] * in.d[3])
        {
            for (int64_t i = 0; i < out.d[2] * out.d[3]; ++i)
            {
                *y++ = largest<T, kVALUE>(x, in, i / out.d[3] * mStride - mPadding, i % out.d[3] * mStride - mPadding);
            }
        }
        return 0;
    }

    template <typename T, float (*kVALUE)(T)>
    T largest(T const* plane, Dims const& in, int64_t top, int64_t left) const
    {
        int64_t const row = std::max<int64_t>(top, 0), column = std::max<int64_t>(left, 0);
        T best = plane[row * in.d[3] + column];
        for (int64_t r = row; r < std::min<int64_t>(top + mWindow, in.d[2]); ++r)
        {
            for (int64_t c = column; c < std::min<int64_t>(left + mWindow, in.d[3]); ++c)
            {
                T const element = plane[r * in.d[3] + c];
                best = kVALUE(element) > kVALUE(best) ? element : best;
            }
        }
        return best;
    }

    // To the scale of the output; a tensor whose scale is not known has -1.
    static int32_t rescale(int8_t* y, Dims const& out, float inScale, float outScale)
    {
        if (inScale <= 0 || outScale <= 0 || inScale == outScale)
        {
            return 0;
        }
        int64_t const count = out.d[0] * out.d[1] * out.d[2] * out.d[3];
        std::transform(y, y + count, y, [&](int8_t element) {
            float const value = std::nearbyint(static_cast<float>(element) * inScale / outScale);
            return static_cast<int8_t>(std::min(std::max(value, -128.0F), 127.0F));
        });
        return 0;
    }

    int32_t mWindow{2};
    int32_t mStride{2};
    int32_t mPadding{0};
};

using PoolCreator = ExampleCreator<PoolPlugin>;

} // namespace

REGISTER_TENSORRT_PLUGIN(PoolCreator);
