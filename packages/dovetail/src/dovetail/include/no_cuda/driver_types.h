// A stand-in for CUDA's types on machines without it.
#pragma once

#include "cuda_runtime_api.h"
