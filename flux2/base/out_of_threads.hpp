// How a refused thread is told: as a lack of memory, since its stack is what it takes most of.
#pragma once

#include <exception>
#include <system_error>

namespace flux2 {

inline constexpr const char* kOutOfThreads =
    "the system starts no more threads; use fewer, or raise its limits (ulimit -u, ulimit -v, "
    "pids.max of a container)";

// Whether this is what std::thread throws then.
inline bool is_out_of_threads(const std::exception& error) {
    const auto* found = dynamic_cast<const std::system_error*>(&error);
    return found != nullptr && found->code() == std::errc::resource_unavailable_try_again;
}

}  // namespace flux2
