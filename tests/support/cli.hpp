// The flux2 program in tests: command lines on the small klein model, and a program at a terminal
// that the test talks to.
#pragma once

#include "support/program.hpp"
#include "support/support.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace flux2::test {

using Arguments = std::vector<std::string>;

Arguments joined(Arguments first, const Arguments& second);

// One word for a shell.
std::string quoted(const std::string& argument);

// A file with the recorded text features, cut to few tokens, since they take most of the time of a
// small run.
std::string few_features();

// The klein fixture's transformer and autoencoder, and a run that leaves nothing on disk but its
// pictures.
Arguments klein_parts();
// The same with text features, so that it draws; 64x64 in one step.
Arguments small_picture();

// The fixture's text encoder with a tokenizer beside it, so that it reads prompts; in the folder.
std::filesystem::path write_reading_encoder(const TemporaryFolder& folder);

// A LoRA of rank 2 for one matrix of the klein fixture's transformer, with this value everywhere.
void write_small_lora(const std::filesystem::path& file, float value = 0.05f);

// Runs flux2 without anything to read at its input.
ProgramResult flux2_program(const Arguments& arguments);

// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text);

// flux2 with a terminal of its own that echoes nothing.
class TerminalProgram {
  public:
    explicit TerminalProgram(const Arguments& arguments);
    ~TerminalProgram();  // ends it, should it still run
    TerminalProgram(const TerminalProgram&) = delete;
    TerminalProgram& operator=(const TerminalProgram&) = delete;

    void type(const std::string& keys);
    void send(int signal);
    // Reads up to the text and returns what was read, this included. The test fails when it does
    // not come.
    std::string wait_for(const std::string& text);
    // Reads to the end. Returns the exit code; -1 when it ended otherwise or not within the time.
    int wait_for_exit(double seconds);

  private:
    bool read_more(double seconds);

    int terminal_ = -1;
    int process_ = -1;
    std::string unread_;
};

}  // namespace flux2::test
