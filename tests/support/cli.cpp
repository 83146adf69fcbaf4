#include "support/cli.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>

namespace flux2::test {
namespace {

using Clock = std::chrono::steady_clock;

// Generous: sanitizers and busy machines are slow.
constexpr double kPatience = 60;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void silence_echo(int terminal) {
    termios settings{};
    REQUIRE(tcgetattr(terminal, &settings) == 0);
    settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    settings.c_oflag &= ~static_cast<tcflag_t>(ONLCR);
    REQUIRE(tcsetattr(terminal, TCSANOW, &settings) == 0);
}

// In the child process: takes over the terminal and executes the program.
[[noreturn]] void become(char* const* argv, int terminal) {
    setsid();
    ioctl(terminal, TIOCSCTTY, 0);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        dup2(terminal, stream);
    }
    execv(argv[0], argv);
    _exit(127);
}

}  // namespace

std::string quoted(const std::string& argument) {
    std::string text = "'";
    for (const char c : argument) {
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return text + "'";
}

Arguments joined(Arguments first, const Arguments& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

std::string few_features() {
    static const TemporaryFolder folder;
    const std::filesystem::path file = folder / "features.safetensors";
    if (!std::filesystem::exists(file)) {
        constexpr int64_t kTokens = 16;
        std::vector<TestTensor> kept;
        for (TestTensor& tensor : tensors_of(fixture("klein/text_encoder.golden.safetensors"))) {
            if (tensor.name.ends_with("prompt_embeds")) {
                const size_t token_bytes =
                    tensor.data.size() / static_cast<size_t>(tensor.shape[1]);
                tensor.shape[1] = kTokens;
                tensor.data.resize(kTokens * token_bytes);
                kept.push_back(tensor);
            }
        }
        write_file(file, safetensors_of(kept));
    }
    return file.string();
}

Arguments klein_parts() {
    return {"--diffusion-model",
            fixture("klein/flux2.safetensors").string(),
            "--vae",
            fixture("klein/vae.safetensors").string(),
            "--no-cache",
            "-t",
            "1"};
}

Arguments small_picture() {
    return joined(klein_parts(),
                  {"--embeds", few_features(), "-W", "64", "-H", "64", "--steps", "1"});
}

std::filesystem::path write_reading_encoder(const TemporaryFolder& folder) {
    constexpr size_t kRows = 768;  // of the tiny tokenizer
    auto tensors = tensors_of(fixture("klein/text_encoder.safetensors"));
    for (TestTensor& tensor : tensors) {
        if (tensor.name == "model.embed_tokens.weight") {
            const size_t row_bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[1]);
            tensor.shape[1] = kRows;
            tensor.data.resize(kRows * row_bytes);
        }
    }
    write_file(folder / "te.safetensors", safetensors_of(tensors));
    std::filesystem::copy_file(fixture("tiny/tokenizer.json"), folder / "tokenizer.json");
    return folder / "te.safetensors";
}

void write_small_lora(const std::filesystem::path& file, float value) {
    constexpr int64_t kHidden = 128, kRank = 2;
    const Bytes values = bytes_of(std::vector<float>(kHidden * kRank, value));
    const std::string module = "diffusion_model.double_blocks.0.img_attn.proj.";
    const std::vector<TestTensor> tensors = {
        {module + "lora_A.weight", {kHidden, kRank}, values},
        {module + "lora_B.weight", {kRank, kHidden}, values},
    };
    std::filesystem::create_directories(file.parent_path());
    write_file(file, safetensors_of(tensors, R"({"ss_output_name": "small"})"));
}

ProgramResult flux2_program(const Arguments& arguments) {
    std::string line = quoted(flux2_path());
    for (const std::string& argument : arguments) {
        line += " " + quoted(argument);
    }
    return run_program(line + " < /dev/null");
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

TerminalProgram::TerminalProgram(const Arguments& arguments) {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE((terminal_ >= 0 && grantpt(terminal_) == 0 && unlockpt(terminal_) == 0));
    const int other_end = open(ptsname(terminal_), O_RDWR | O_NOCTTY);
    REQUIRE(other_end >= 0);
    silence_echo(other_end);
    Arguments command = joined({flux2_path()}, arguments);
    std::vector<char*> argv;
    for (std::string& argument : command) {
        argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    process_ = fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
        become(argv.data(), other_end);
    }
    close(other_end);
}

TerminalProgram::~TerminalProgram() {
    if (process_ > 0) {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    close(terminal_);
}

void TerminalProgram::type(const std::string& keys) {
    REQUIRE(write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void TerminalProgram::send(int signal) {
    REQUIRE(kill(process_, signal) == 0);
}

// Waits for output and appends it. Returns false when the program has closed the terminal.
bool TerminalProgram::read_more(double seconds) {
    pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(seconds * 1000)) <= 0) {
        return true;
    }
    std::array<char, 4096> buffer{};
    const ssize_t n = read(terminal_, buffer.data(), buffer.size());
    if (n > 0) {
        unread_.append(buffer.data(), static_cast<size_t>(n));
    }
    return n > 0;
}

std::string TerminalProgram::wait_for(const std::string& text) {
    const auto start = Clock::now();
    bool open = true;
    size_t at = unread_.find(text);
    while (at == std::string::npos && open && seconds_since(start) < kPatience) {
        open = read_more(0.1);
        at = unread_.find(text);
    }
    REQUIRE_MESSAGE(at != std::string::npos, "expected '" << text << "', got: " << unread_);
    const std::string seen = unread_.substr(0, at + text.size());
    unread_.erase(0, at + text.size());
    return seen;
}

int TerminalProgram::wait_for_exit(double seconds) {
    const auto start = Clock::now();
    int status = 0;
    bool open = true;
    while (waitpid(process_, &status, WNOHANG) == 0) {
        if (seconds_since(start) > seconds) {
            return -1;
        }
        if (open) {
            open = read_more(0.02);
        } else {
            usleep(10000);
        }
    }
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace flux2::test
