#include "base/run_program.hpp"

#include "base/check.hpp"

#include <system_error>

#ifdef _WIN32
#include <process.h>
#else
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>

extern char** environ;
#endif

namespace flux2 {

namespace fs = std::filesystem;

// Backslashes are plain but before a quote: there each is doubled, and one more stands for the
// quote.
std::wstring quoted_for_windows(std::wstring_view argument) {
    std::wstring quoted = L"\"";
    size_t n_backslashes = 0;
    for (const wchar_t c : argument) {
        if (c == L'"') {
            quoted.append(n_backslashes + 1, L'\\');
        }
        n_backslashes = c == L'\\' ? n_backslashes + 1 : 0;
        quoted += c;
    }
    quoted.append(n_backslashes, L'\\');
    return quoted + L'"';
}

#ifdef _WIN32

int run_program(const fs::path& program, const std::vector<std::string>& arguments) {
    std::vector<std::wstring> texts = {quoted_for_windows(program.wstring())};
    for (const std::string& argument : arguments) {
        texts.push_back(quoted_for_windows(fs::path(argument).wstring()));
    }
    std::vector<const wchar_t*> pointers;
    for (const std::wstring& text : texts) {
        pointers.push_back(text.c_str());
    }
    pointers.push_back(nullptr);
    const intptr_t code = _wspawnv(_P_WAIT, program.c_str(), pointers.data());
    check(code >= 0, ErrorKind::bad_file, program.string(), ": cannot be run");
    return static_cast<int>(code);
}

#else

int run_program(const fs::path& program, const std::vector<std::string>& arguments) {
    std::vector<std::string> texts = {program.string()};
    texts.insert(texts.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& text : texts) {
        pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
    pid_t process = 0;
    const int error =
        posix_spawn(&process, program.c_str(), nullptr, nullptr, pointers.data(), environ);
    check(error == 0, ErrorKind::bad_file, program.string(),
          ": cannot be run: ", std::generic_category().message(error));
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    constexpr int kEndedBySignal = 130;
    return WIFEXITED(status) ? WEXITSTATUS(status) : kEndedBySignal;
}

#endif

}  // namespace flux2
