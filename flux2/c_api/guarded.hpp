// How functions of the C interface end: exceptions become a status value and the thread's last
// error.
#pragma once

#include <flux2/flux2.h>
#include <flux2/error.hpp>
#include "base/out_of_threads.hpp"

#include <exception>
#include <filesystem>
#include <new>
#include <string>

namespace flux2::c_api {

constexpr flux2_status status_of(ErrorKind kind) {
    return static_cast<flux2_status>(static_cast<int>(kind) + 1);
}
static_assert(status_of(ErrorKind::bad_argument) == FLUX2_BAD_ARGUMENT);
static_assert(status_of(ErrorKind::bad_file) == FLUX2_BAD_FILE);
static_assert(status_of(ErrorKind::unsupported) == FLUX2_UNSUPPORTED);
static_assert(status_of(ErrorKind::out_of_memory) == FLUX2_OUT_OF_MEMORY);
static_assert(status_of(ErrorKind::out_of_disk) == FLUX2_OUT_OF_DISK);
static_assert(status_of(ErrorKind::backend) == FLUX2_BACKEND);
static_assert(status_of(ErrorKind::cancelled) == FLUX2_CANCELLED);
static_assert(status_of(ErrorKind::internal) == FLUX2_INTERNAL);

// What went wrong last on this thread.
const std::string& last_error();
flux2_status failed(ErrorKind kind, const char* message) noexcept;

template <typename Body>
flux2_status guarded(const Body& body) noexcept {
    try {
        body();
        return FLUX2_OK;
    } catch (const flux2::Error& error) {
        return failed(error.kind(), error.what());
    } catch (const std::filesystem::filesystem_error& error) {
        return failed(ErrorKind::bad_file, error.what());
    } catch (const std::bad_alloc&) {
        return failed(ErrorKind::out_of_memory, "out of memory; close other programs");
    } catch (const std::exception& error) {
        if (is_out_of_threads(error)) {
            return failed(ErrorKind::out_of_memory, kOutOfThreads);
        }
        return failed(ErrorKind::internal, error.what());
    } catch (...) {
        return failed(ErrorKind::internal, "an exception of unknown type");
    }
}

// Throws bad_argument for a null pointer.
void check_given(const void* pointer, const char* name);

}  // namespace flux2::c_api
