// Which flux2 this is.
#pragma once

namespace flux2 {

// "0.1.0"; also written into converted files.
const char* version();

}  // namespace flux2
