// A stand-in for CUDA's half on machines without it: two bytes that are converted to and from float.
#pragma once

#include <cstdint>
#include <cstring>

struct __half_raw
{
    uint16_t x;
};

struct __half
{
    uint16_t bits{0};
    __half() = default;
    __half(float value) : bits(fromFloat(value)) {}
    operator float() const { return toFloat(bits); }
    operator __half_raw() const { return {bits}; }

private:
    static uint16_t fromFloat(float value)
    {
        uint32_t word;
        std::memcpy(&word, &value, sizeof(word));
        uint32_t const sign = word >> 16 & 0x8000U;
        uint32_t const magnitude = word & 0x7FFFFFFFU;
        if (magnitude > 0x7F800000U)
        {
            return static_cast<uint16_t>(sign | 0x7E00U); // not a number
        }
        if (magnitude >= 0x477FF000U)
        {
            return static_cast<uint16_t>(sign | 0x7C00U); // rounds to infinity
        }
        if (magnitude < 0x33000001U)
        {
            return static_cast<uint16_t>(sign); // rounds to zero
        }
        return static_cast<uint16_t>(sign | roundMagnitude(magnitude));
    }

    // To the nearest, ties to even; small numbers have no leading one.
    static uint32_t roundMagnitude(uint32_t magnitude)
    {
        int32_t const exponent = static_cast<int32_t>(magnitude >> 23) - 112;
        uint32_t const mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
        int32_t const shift = exponent > 0 ? 13 : 14 - exponent;
        uint32_t const kept = mantissa >> shift;
        uint32_t const rest = mantissa & ((1U << shift) - 1U), half = 1U << (shift - 1);
        uint32_t const up = rest > half || (rest == half && (kept & 1U)) ? 1U : 0U;
        uint32_t const base = exponent > 0 ? static_cast<uint32_t>(exponent - 1) << 10 : 0U;
        return base + kept + up;
    }

    static float toFloat(uint16_t bits)
    {
        uint32_t const sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
        uint32_t const exponent = bits >> 10 & 0x1FU;
        uint32_t const mantissa = bits & 0x3FFU;
        if (exponent == 0)
        {
            float const small = static_cast<float>(mantissa) * 5.9604644775390625e-08F;
            return sign ? -small : small;
        }
        uint32_t const word = sign | (exponent == 31 ? 0x7F800000U : (exponent + 112) << 23) | mantissa << 13;
        float value;
        std::memcpy(&value, &word, sizeof(value));
        return value;
    }
};
typedef __half half;

struct __half2
{
    __half x, y;
};
typedef __half2 half2;

inline __half& operator+=(__half& left, __half right) { return left = left + right; }
inline __half& operator-=(__half& left, __half right) { return left = left - right; }
inline __half& operator*=(__half& left, __half right) { return left = left * right; }
inline __half& operator/=(__half& left, __half right) { return left = left / right; }

inline __half __float2half(float value)
{
    return __half(value);
}

inline float __half2float(__half value)
{
    return static_cast<float>(value);
}

inline __half __float2half_rn(float value)
{
    return __half(value);
}

inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}
