// A stand-in for the CUDA runtime on machines without it.
#pragma once

#include "cuda_runtime_api.h"
#include "vector_functions.h"

#define __host__
#define __device__
#define __forceinline__ inline
