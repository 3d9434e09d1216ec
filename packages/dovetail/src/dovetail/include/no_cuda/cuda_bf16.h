// A stand-in for CUDA's bfloat16 on machines without it: two bytes that are converted to and from float.
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16
{
    uint16_t bits{0};
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits(fromFloat(value)) {}
    operator float() const
    {
        uint32_t const word = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &word, sizeof(value));
        return value;
    }

private:
    // To the nearest, ties to even; what is not a number stays so.
    static uint16_t fromFloat(float value)
    {
        uint32_t word;
        std::memcpy(&word, &value, sizeof(word));
        bool const isNumber = (word & 0x7FFFFFFFU) <= 0x7F800000U;
        uint32_t const rounded = isNumber ? word + 0x7FFFU + (word >> 16 & 1U) : word | 0x400000U;
        return static_cast<uint16_t>(rounded >> 16);
    }
};
typedef __nv_bfloat16 nv_bfloat16;

inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}

inline float __bfloat162float(__nv_bfloat16 value)
{
    return static_cast<float>(value);
}
