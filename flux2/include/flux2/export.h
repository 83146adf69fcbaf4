// Marks what a shared library of flux2 exports; all other symbols in it are hidden.
//
// Programs that link the shared library are compiled with FLUX2_SHARED, which the CMake package and
// the pkg-config file see to. FLUX2_BUILDING_SHARED is defined while that library is built.
#pragma once

#if !defined(_WIN32)
#define FLUX2_API __attribute__((visibility("default")))
#elif defined(FLUX2_BUILDING_SHARED)
#define FLUX2_API __declspec(dllexport)
#elif defined(FLUX2_SHARED)
#define FLUX2_API __declspec(dllimport)
#else
#define FLUX2_API
#endif

// Of a class that is defined in a header and thrown: program and library must agree on its type.
#if !defined(_WIN32)
#define FLUX2_THROWN FLUX2_API
#else
#define FLUX2_THROWN
#endif
