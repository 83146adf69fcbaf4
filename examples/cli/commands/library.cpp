#include "commands/library.hpp"

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_arguments.hpp"
#include "common/options.hpp"
#include "common/reference_library.hpp"

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

struct ListedElement {
    std::string name;
    LibraryElement element;
    int width = 0, height = 0;  // of its picture; 0: unreadable
    std::string problem;        // why a prompt cannot use it; empty: none
};

ListedElement describe(const ReferenceLibrary& library, const std::string& name) {
    ListedElement listed;
    listed.name = name;
    try {
        listed.element = library.find(name);
        const Image picture = load_image(listed.element.picture);
        listed.width = picture.width;
        listed.height = picture.height;
        expand_elements("@" + name, library);  // throws for what its sentence mentions
    } catch (const Error& error) {
        listed.problem = error.message(option_of);
    }
    return listed;
}

void print(const ListedElement& listed) {
    const auto print_text = [](const char* what, const std::string& text) {
        if (!text.empty()) {
            std::cout << "  " << what << ": " << text << "\n";
        }
    };
    std::cout << "@" << listed.name;
    if (listed.width > 0) {
        std::cout << "  " << listed.element.picture.filename().string() << ", " << listed.width
                  << "x" << listed.height;
    }
    std::cout << "\n";
    print_text("description", listed.element.description);
    print_text("trigger words", listed.element.trigger);
    print_text("sentence", listed.element.sentence());
    print_text("problem", listed.problem);
}

nlohmann::json to_json(const ListedElement& listed) {
    return {{"name", listed.name},
            {"picture", listed.element.picture.string()},
            {"width", listed.width},
            {"height", listed.height},
            {"description", listed.element.description},
            {"trigger", listed.element.trigger},
            {"sentence", listed.element.sentence()},
            {"problem", listed.problem}};
}

// Returns whether all is well.
bool list(const fs::path& folder, bool as_json) {
    const ReferenceLibrary library(folder);
    nlohmann::json elements = nlohmann::json::array();
    bool is_sound = library.strays().empty();
    for (const std::string& name : library.names()) {
        const ListedElement listed = describe(library, name);
        is_sound = is_sound && listed.problem.empty();
        elements.push_back(to_json(listed));
        if (!as_json) {
            print(listed);
        }
    }
    if (as_json) {
        const nlohmann::json all = {{"elements", elements}, {"problems", library.strays()}};
        // A file name need not be UTF-8.
        std::cout << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
        return is_sound;
    }
    for (const std::string& stray : library.strays()) {
        std::cout << "problem: " << stray << "\n";
    }
    if (elements.empty()) {
        std::cout << folder.string() << ": holds no PNG, JPEG or WebP that a prompt could name\n";
    }
    return is_sound;
}

}  // namespace

int library(int argc, char** argv) {
    cxxopts::Options options("flux2 library",
                             "Lists the pictures that prompts can name with --ref-library "
                             "FOLDER.\n");
    options.add_options()                                         //
        ("json", "print one JSON object instead of lines")        //
        ("folder", "the library", cxxopts::value<std::string>())  //
        ("h,help", "print this help");
    options.parse_positional({"folder"});
    options.positional_help("FOLDER");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check_no_leftovers(args);
    check(args.count("folder") > 0, ErrorKind::bad_argument, "which library? flux2 library FOLDER");
    const fs::path folder = args["folder"].as<std::string>();
    check(is_folder(folder), ErrorKind::bad_file, folder.string(),
          ": no such folder; flux2 library takes one with named pictures");
    const bool is_sound = list(folder, args.count("json") > 0);
    std::cout.flush();
    return is_sound ? 0 : exit_code(ErrorKind::bad_file);
}

}  // namespace flux2::cli
