// Forwards to Dovetail's interface under the name that existing plugins include.
#pragma once

#include "NvInferPluginUtils.h"

// A library that defines it has it called when it is loaded, with Dovetail's logger.
extern "C" TENSORRTAPI bool initLibNvInferPlugins(void* logger, char const* libNamespace);
