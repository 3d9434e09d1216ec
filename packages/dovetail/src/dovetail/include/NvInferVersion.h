// The version of the contract that these headers follow, for sources that ask.
#pragma once

// Sources that were written for version 8 are compiled with the folder v8 on the include path.
#ifndef DOVETAIL_CONTRACT
#define DOVETAIL_CONTRACT 11
#endif

#if DOVETAIL_CONTRACT == 8
#define NV_TENSORRT_MAJOR 8
#define NV_TENSORRT_MINOR 6
#define NV_TENSORRT_PATCH 1
#define NV_TENSORRT_BUILD 6
#define NV_TENSORRT_VERSION (NV_TENSORRT_MAJOR * 1000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)
#else
#define NV_TENSORRT_MAJOR 11
#define NV_TENSORRT_MINOR 1
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_BUILD 1
#define NV_TENSORRT_VERSION (NV_TENSORRT_MAJOR * 10000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)
#endif
#define NV_TENSORRT_SONAME_MAJOR NV_TENSORRT_MAJOR
#define NV_TENSORRT_SONAME_MINOR NV_TENSORRT_MINOR
#define NV_TENSORRT_SONAME_PATCH NV_TENSORRT_PATCH
