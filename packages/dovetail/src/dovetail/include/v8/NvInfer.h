// The interface with the numbers and the layout of version 8 of the contract: shapes of 32 bits.
#pragma once

#define DOVETAIL_CONTRACT 8
#include "../NvInfer.h"
