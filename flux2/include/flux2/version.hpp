// The version of the library.
#pragma once

#include <flux2/export.h>

namespace flux2 {

// "0.2.0"; also written into converted files.
FLUX2_API const char* version();

}  // namespace flux2
