// What both programs print for --help.
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <set>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(' ');
    return first == std::string::npos ? ""
                                      : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// The help of every command, by how it was asked for.
std::map<std::string, std::string> all_helps() {
    std::map<std::string, std::string> helps;
    for (const char* command : {"", "redo", "plan", "bench", "selftest", "info", "library",
                                "models", "pull", "rm", "config"}) {
        test::Arguments arguments = {command, "--help"};
        std::erase(arguments, "");
        helps[std::string("flux2 ") + command] = test::flux2_program(arguments).out;
    }
    helps["flux2 help"] = test::flux2_program({"help"}).out;
    helps["flux2-convert"] = test::run_program(test::convert_path() + " --help").out;
    return helps;
}

// The texts of a help's options by their names, each in one line.
std::map<std::string, std::string> option_texts(const std::string& help) {
    const std::regex option("  (?:-\\w, |    )--([a-z0-9-]+)(?: arg)?(?:  +(.*))?");
    std::map<std::string, std::string> texts;
    std::string* text = nullptr;  // of the option whose lines these are
    for (const std::string& line : test::lines_of(help)) {
        std::smatch match;
        if (std::regex_match(line, match, option)) {
            text = &texts[match[1]];
            *text = trimmed(match[2]);
        } else if (text != nullptr && line.starts_with("          ")) {
            *text += (text->empty() ? "" : " ") + trimmed(line);
        } else {
            text = nullptr;
        }
    }
    return texts;
}

// The string literals in the sources of both programs, adjacent ones concatenated.
std::set<std::string> texts_in_sources() {
    const fs::path root = fs::path(test::fuzz_corpus()) / "../../..";
    std::set<std::string> texts;
    for (const char* folder : {"examples", "convert"}) {
        for (const fs::directory_entry& file : fs::recursive_directory_iterator(root / folder)) {
            if (file.path().extension() != ".cpp") {
                continue;
            }
            const test::Bytes bytes = test::read_file(file.path());
            const std::string source = std::regex_replace(
                std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                std::regex("\"\\s*\n\\s*\""), "");
            const std::regex quoted("\"([^\"\n]*)\"");
            for (std::sregex_iterator it(source.begin(), source.end(), quoted), end; it != end;
                 ++it) {
                texts.insert((*it)[1]);
            }
        }
    }
    return texts;
}

TEST_CASE("no line of any help is wider than a terminal") {
    constexpr size_t kColumns = 80;
    for (const auto& [command, help] : all_helps()) {
        CHECK_MESSAGE(help.size() > 100, command);
        for (const std::string& line : test::lines_of(help)) {
            CHECK_MESSAGE(line.size() <= kColumns, command << ": " << line);
        }
    }
}

// cxxopts drops a last word of one letter that would begin a line.
TEST_CASE("the text of every option is printed whole") {
    const std::set<std::string> whole = texts_in_sources();
    const std::regex default_value(" \\(default: [^()]*\\)$");  // added by the parser
    for (const auto& [command, help] : all_helps()) {
        const auto texts = option_texts(help);
        CHECK_MESSAGE((texts.contains("help") || command == "flux2 help"), command);
        for (const auto& [option, text] : texts) {
            const bool found =
                whole.contains(text) || whole.contains(std::regex_replace(text, default_value, ""));
            CHECK_MESSAGE(found, command << " --" << option << ": " << text);
        }
    }
}

}  // namespace
}  // namespace flux2
