#include "c_api/guarded.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"

namespace flux2::c_api {

namespace {

thread_local std::string message_of_last;

}  // namespace

const std::string& last_error() {
    return message_of_last;
}

flux2_status failed(ErrorKind kind, const char* message) noexcept {
    try {
        message_of_last = as_utf8(message);
    } catch (const std::bad_alloc&) {
        message_of_last = "out of memory";  // short enough to need none
    }
    return status_of(kind);
}

void check_given(const void* pointer, const char* name) {
    check(pointer != nullptr, ErrorKind::bad_argument, name, " is a null pointer");
}

}  // namespace flux2::c_api
