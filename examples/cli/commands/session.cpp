#include "commands/session.hpp"

#include "base/check.hpp"
#include "commands/generate.hpp"
#include "common/cancel.hpp"
#include "common/prompt_tags.hpp"

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    "Type a prompt and press Enter. Settings are changed by key=value:\n"
    "  width=512 height=512       pixels, multiples of 16; width= takes the default again\n"
    "  steps=4 guidance=4 seed=7  likewise\n"
    "  input_images=a.png,$1      references: files, and results of this session by number;\n"
    "                             style=a.png says what it is for (flux2 --help: roles)\n"
    "  match_image_size=0         take the size of a reference, the first is 0\n"
    "  negative_prompt=blurry     for models guided by two passes\n"
    "LoRAs, for all pictures that follow; <lora:NAME:0.8> in a prompt is for one:\n"
    "  /lora FILE:0.8             use one, or change its strength\n"
    "  /lora                      list them\n"
    "  /lora remove 1             stop using the first; /lora clear: all\n"
    "Commands: show (settings), history (results so far), help, quit.\n";

constexpr const char* kLoraCommand = "/lora";

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t\r");
    const size_t last = text.find_last_not_of(" \t\r");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Each picture gets a unique name, with any pattern.
OutputNames name_pictures(const GenerateOptions& options, Display& display) {
    using Existing = OutputNames::Existing;
    OutputNames names(pattern_of_several(options.output),
                      options.overwrite ? Existing::replaced : Existing::kept);
    tell_first_number(names, display);
    return names;
}

class Session {
  public:
    Session(const GenerateOptions& options, Display& display)
        : options_(options),
          display_(display),
          picture_maker_(options, name_pictures(options, display), display) {
        std::cout << picture_maker_.pipeline().model().name << " on "
                  << picture_maker_.pipeline().device() << ". Type a prompt, or help.\n";
    }

    // Returns false at the end.
    bool handle(const std::string& line) {
        if (line == "quit" || line == "exit") {
            return false;
        }
        if (line == "help") {
            std::cout << kHelp;
        } else if (line == "show") {
            show();
        } else if (line == "history") {
            history();
        } else if (line == kLoraCommand || line.starts_with(std::string(kLoraCommand) + " ")) {
            change_adapters(trimmed(line.substr(std::string(kLoraCommand).size())));
        } else if (!line.empty() && !set(line)) {
            draw(line);
        }
        return true;
    }

  private:
    struct Drawn {
        std::string prompt;
        fs::path file;
    };

    bool set(const std::string& line);
    void change_adapters(const std::string& what);
    void use_adapter(const std::string& what);
    void remove_adapter(const std::string& number);
    void show_adapters() const;
    void draw(const std::string& prompt);
    void show() const;
    void history() const;
    fs::path resolve_picture(const std::string& name) const;

    GenerateOptions options_;
    Display& display_;
    PictureMaker picture_maker_;
    std::vector<Drawn> drawn_;
};

// Whether a line that is no known setting looks like one, rather than like a prompt.
bool looks_like_setting(const std::string& key) {
    constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz_";
    return key.size() > 1 && key.find_first_not_of(kLetters) == std::string::npos;
}

// "$2" is the second result of this session.
fs::path Session::resolve_picture(const std::string& name) const {
    if (!name.starts_with("$")) {
        return name;
    }
    const int number = parse_int("$", name.substr(1));
    check(number >= 1 && static_cast<size_t>(number) <= drawn_.size(), ErrorKind::bad_argument,
          name, " is no result of this session; there are ", drawn_.size(), " so far");
    return drawn_[static_cast<size_t>(number) - 1].file;
}

// Takes a line of the form key=value. Returns false when it is a prompt.
bool Session::set(const std::string& line) {
    const size_t equals = line.find('=');
    const std::string key = trimmed(line.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trimmed(line.substr(equals + 1));
    Request& r = options_.request;
    const auto whole = [&](std::optional<int>& target) {
        target = value.empty() ? std::nullopt : std::optional(parse_int(key, value));
    };
    const std::map<std::string, std::function<void()>> setters = {
        {"width", [&] { whole(r.width); }},
        {"height", [&] { whole(r.height); }},
        {"steps", [&] { whole(r.steps); }},
        {"num_steps", [&] { whole(r.steps); }},
        {"guidance",
         [&] {
             r.guidance = value.empty() ? std::nullopt : std::optional(parse_float(key, value));
         }},
        {"seed", [&] { r.seed = value.empty() ? std::nullopt : std::optional(parse_seed(value)); }},
        {"negative_prompt", [&] { r.negative_prompt = value; }},
        {"input_images",
         [&] {
             std::vector<ReferenceFile> references;
             std::istringstream in(value);
             for (std::string item; std::getline(in, item, ',');) {
                 ReferenceFile& reference = references.emplace_back(parse_reference(trimmed(item)));
                 reference.file = resolve_picture(reference.file.string());
                 load_image(reference.file, options_.alpha);  // throws now if it cannot be read
             }
             set_references(references, options_);
         }},
        {"match_image_size",
         [&] {
             const int number = value.empty() ? 0 : parse_int(key, value);
             check(number >= 0, ErrorKind::bad_argument, key, " counts references from 0");
             r.match_reference =
                 value.empty() ? std::nullopt : std::optional(static_cast<size_t>(number));
         }},
    };
    const auto setter = setters.find(key);
    if (equals == std::string::npos || setter == setters.end()) {
        check(equals == std::string::npos || !looks_like_setting(key), ErrorKind::bad_argument,
              "there is no setting ", key, "; help lists them");
        return false;
    }
    setter->second();
    return true;
}

// Takes what follows /lora.
void Session::change_adapters(const std::string& what) {
    const std::string remove = "remove";
    if (what == "clear") {
        options_.request.adapters.clear();
    } else if (what == remove || what.starts_with(remove + " ")) {
        remove_adapter(trimmed(what.substr(remove.size())));
    } else if (!what.empty()) {
        use_adapter(what);
    }
    show_adapters();
}

void Session::use_adapter(const std::string& what) {
    Adapter adapter = parse_adapter(what);
    apply_filters(options_.adapter_filters, adapter);
    inspect_adapter(adapter.file);  // throws now if it cannot be used
    std::vector<Adapter>& adapters = options_.request.adapters;
    const auto same = std::find_if(adapters.begin(), adapters.end(),
                                   [&](const Adapter& used) { return used.file == adapter.file; });
    if (same != adapters.end()) {
        *same = adapter;
    } else {
        adapters.push_back(adapter);
    }
}

void Session::remove_adapter(const std::string& number) {
    std::vector<Adapter>& adapters = options_.request.adapters;
    const int which = parse_int("/lora remove", number);
    check(which >= 1 && static_cast<size_t>(which) <= adapters.size(), ErrorKind::bad_argument,
          "there is no LoRA number ", which, "; /lora lists the ", adapters.size(), " in use");
    adapters.erase(adapters.begin() + (which - 1));
}

void Session::show_adapters() const {
    const std::vector<Adapter>& adapters = options_.request.adapters;
    for (size_t i = 0; i < adapters.size(); ++i) {
        std::cout << "LoRA " << i + 1 << ": " << adapters[i].file.string() << ":"
                  << adapters[i].strength << "\n";
    }
    if (adapters.empty()) {
        std::cout << "no LoRA is in use\n";
    }
}

void Session::draw(const std::string& prompt) {
    const std::vector<AdaptedPrompt> resolved = resolve_tags({prompt}, options_);
    for (const fs::path& file : picture_maker_.draw(options_, make_request(options_), resolved)) {
        drawn_.push_back({prompt, file});
        std::cout << "$" << drawn_.size() << " = " << file.string() << std::endl;
    }
}

void Session::show() const {
    const Request& r = options_.request;
    const auto tell = [](const char* key, const auto& value) {
        std::cout << key << "=";
        if (value) {
            std::cout << *value;
        }
        std::cout << "\n";
    };
    tell("width", r.width);
    tell("height", r.height);
    tell("steps", r.steps);
    tell("guidance", r.guidance);
    tell("seed", r.seed);
    std::cout << "negative_prompt=" << r.negative_prompt << "\ninput_images=";
    for (size_t i = 0; i < options_.references.size(); ++i) {
        const std::string& role = r.reference_roles.at(i);
        std::cout << (i == 0 ? "" : ",") << role << (role.empty() ? "" : "=")
                  << options_.references[i].string();
    }
    std::cout << "\n";
    tell("match_image_size", r.match_reference);
    show_adapters();
}

void Session::history() const {
    for (size_t i = 0; i < drawn_.size(); ++i) {
        std::cout << "$" << i + 1 << "  " << drawn_[i].file.string() << "  " << drawn_[i].prompt
                  << "\n";
    }
}

bool read_line(std::string& line) {
    const EndsAtOnce while_waiting;
    cancel_requested = false;  // Ctrl-C cancels the picture, not the session
    std::cout << "> " << std::flush;
    return static_cast<bool>(std::getline(std::cin, line));
}

}  // namespace

int run_session(const GenerateOptions& options, Display& display) {
    make_request(options);  // reports unreadable pictures before the model is opened
    GenerateOptions kept = options;
    kept.model.load.keep_loaded = true;
    Session session(kept, display);
    for (std::string line; read_line(line);) {
        try {
            if (!session.handle(trimmed(line))) {
                break;
            }
        } catch (const Error& error) {
            std::cerr << "flux2: " << error.message(option_of) << std::endl;
        }
    }
    return 0;
}

}  // namespace flux2::cli
