// The exception type of the library and the exit codes of our programs.
#pragma once

#include <flux2/export.h>
#include <flux2/setting.hpp>

#include <stdexcept>
#include <string>

namespace flux2 {

enum class ErrorKind {
    bad_argument,   // a setting or a value that cannot work
    bad_file,       // missing, unreadable, broken, or not fitting the others
    unsupported,    // a valid file or feature this version does not handle
    out_of_memory,  // host or device memory
    out_of_disk,    // no room for an output
    backend,        // a device failed, or what was computed is not finite
    cancelled,      // the caller or the user asked to stop
    internal,       // a bug of ours, or a check that failed
};

// A failure whose message says what failed, on which thing, what was expected and what to do.
class FLUX2_THROWN Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }
    // what() with the settings it names in the program's words.
    std::string message(const SettingWording& wording) const { return worded(what(), wording); }

  private:
    ErrorKind kind_;
};

// Exit code of a program that ends with this kind of error; 0 is success.
constexpr int exit_code(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::bad_argument:
            return 2;
        case ErrorKind::bad_file:
        case ErrorKind::unsupported:
            return 3;
        case ErrorKind::out_of_memory:
        case ErrorKind::out_of_disk:
            return 4;
        case ErrorKind::backend:
            return 5;
        case ErrorKind::cancelled:
            return 130;
        case ErrorKind::internal:
            break;
    }
    return 1;
}

}  // namespace flux2
