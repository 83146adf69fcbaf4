// The outermost function of our programs: exceptions become one line on stderr and an exit code.
#pragma once

#include <flux2/error.hpp>
#include "base/check.hpp"
#include "base/out_of_threads.hpp"

#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>

namespace flux2 {

// Runs the program's body and returns its exit code; if standard output could not be written, that
// of a full disk. UsageError is the argument parser's exception type; `wording` maps settings to
// the program's option names.
template <typename UsageError, typename Body>
int guarded_main(const char* program, const SettingWording& wording, const Body& body) {
    const auto report = [&](ErrorKind kind, const std::string& message) {
        std::cerr << program << ": " << message << std::endl;
        return exit_code(kind);
    };
    try {
        const int code = body();
        std::cout.flush();
        check(code != 0 || std::cout.good(), ErrorKind::out_of_disk,
              "standard output cannot be written to; make room on its disk");
        return code;
    } catch (const Error& error) {
        return report(error.kind(), error.message(wording));
    } catch (const UsageError& error) {
        return report(ErrorKind::bad_argument, error.what());
    } catch (const std::filesystem::filesystem_error& error) {
        return report(ErrorKind::bad_file, error.what());
    } catch (const std::bad_alloc&) {
        return report(ErrorKind::out_of_memory, "out of memory; close other programs");
    } catch (const std::exception& error) {
        if (is_out_of_threads(error)) {
            return report(ErrorKind::out_of_memory, kOutOfThreads);
        }
        return report(ErrorKind::internal, error.what());
    }
}

}  // namespace flux2
