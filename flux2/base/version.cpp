#include <flux2/version.hpp>

namespace flux2 {

const char* version() {
    return FLUX2_VERSION;
}

}  // namespace flux2
